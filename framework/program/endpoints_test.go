package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// selling is a configuration with a sink for the endpoints of customers.
func (o outbox) selling(with string) string {
	return fmt.Sprintf(`
database: %q
sinks: {customers: {kind: webhooks, with: {%s}, retry: {max_attempts: 1}}}
routes: {"order.*": [customers]}
`, o.address, with)
}

// near lets endpoints be on this machine.
const near = "guard: {mode: off}, allow_http: true"

// customer is a server of a customer, which verifies what it gets.
type customer struct {
	*httptest.Server
	mu      sync.Mutex
	secrets []string
	status  int
	got     []string // "the type of a verified body and its data", or why it was refused
}

func newCustomer(t *testing.T) *customer {
	c := &customer{status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		text := "not verified"
		verified, err := webhook.Receiver{Secrets: c.secrets}.Verify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var body struct {
				Type string
				Data json.RawMessage
			}
			raw, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(raw, &body)
			text = body.Type + " " + string(body.Data) + r.Header.Get("X-Shop")
		}))
		if err == nil {
			verified.ServeHTTP(httptest.NewRecorder(), r)
		}
		c.got = append(c.got, text)
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *customer) set(status int, secrets ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.secrets = status, secrets
}

// await waits for requests, and returns them.
func (c *customer) await(t *testing.T, n int) (got []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.got) >= n {
			got, c.got = c.got, nil
			return true
		}
		return false
	}, patience, 10*time.Millisecond)
	return got
}

// order inserts a row of a tenant as any program can.
func (o outbox) order(t *testing.T, n int, tenant string) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload, metadata) VALUES ('order.placed', 'k', $1, $2)`,
		fmt.Sprintf(`{"n": %d}`, n), fmt.Sprintf(`{"tenant": %q}`, tenant))
	require.NoError(t, err)
}

func TestOperatorsManageTheEndpointsOfCustomers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		shop, operator := newCustomer(t), o.address
		if strings.HasPrefix(o.address, "postgres") {
			operator = o.role(t, "operator")
		}
		file := writeFile(t, o.selling(near))
		command := func(code int, args ...string) result {
			t.Helper()
			r := waybill(t, append(append([]string{"endpoints"}, args...), "-c", file, "--database", operator)...)
			require.Equal(t, code, r.code, r.stdout+r.stderr)
			return r
		}
		as := func(into any, args ...string) {
			t.Helper()
			require.NoError(t, json.Unmarshal([]byte(command(0, append(args, "--json")...).stdout), into))
		}
		require.Equal(t, "no endpoint matches\n", command(0, "list").stdout)
		require.Equal(t, "[]\n", command(0, "list", "--json").stdout)

		var made endpoint.View
		as(&made, "add", "--tenant", "acme", "--url", shop.URL, "--types", "order.*", "--when", "payload.n > 1", "--header", "x-shop=7", "--description", "the shop\x1b[2J", "--by", "ada")
		require.Equal(t, "acme", made.Tenant)
		require.Equal(t, map[string]string{"x-shop": "***"}, made.Headers)
		require.Contains(t, made.Secret, "whsec_")
		require.True(t, made.Enabled)
		shop.set(http.StatusOK, made.Secret)
		other := command(0, "add", "--tenant", "other", "--url", shop.URL, "--asymmetric").stdout
		require.Regexp(t, `^added \S+ of tenant other\nto verify its requests, which is not shown again: whpk_\S+\n$`, other)

		f := startForward(t, "-c", file)
		o.order(t, 1, "acme") // the condition does not hold
		o.order(t, 2, "acme")
		o.order(t, 2, "nobody")
		require.Equal(t, []string{`order.placed {"n": 2}7`}, shop.await(t, 1))
		require.Contains(t, command(0, "test", made.ID).stdout, "tested "+made.ID+": status 200 in ")
		require.Equal(t, []string{`webhooks.test {"message":"This is a test."}7`}, shop.await(t, 1))

		// Both secrets sign for a while.
		var rotated endpoint.View
		as(&rotated, "rotate", made.ID)
		require.NotEqual(t, made.Secret, rotated.Secret)
		for _, secret := range []string{made.Secret, rotated.Secret} {
			shop.set(http.StatusOK, secret)
			command(0, "test", made.ID)
			require.NotContains(t, shop.await(t, 1)[0], "not verified")
		}

		// What fails for good is recovered, once the endpoint works again.
		shop.set(http.StatusInternalServerError, rotated.Secret)
		require.Contains(t, command(exitFailed, "test", made.ID).stderr, "the endpoint did not accept the test: ")
		o.order(t, 3, "acme")
		shop.await(t, 2)
		var whole endpoint.Whole
		require.Eventually(t, func() bool { // attempts and health are written after the delivery is dead
			as(&whole, "show", made.ID)
			return whole.Deliveries.Dead == 1 && !whole.FailingSince.IsZero() && len(whole.Attempts) > 0
		}, patience, 50*time.Millisecond)
		require.Equal(t, http.StatusInternalServerError, whole.Attempts[0].Status)
		shown := command(0, "show", made.ID).stdout
		require.Contains(t, shown, `the shop\x1b[2J`)
		require.Contains(t, shown, "0 waiting, 1 dead")
		require.Regexp(t, `state: +failing`, shown)
		require.Regexp(t, `order\.placed +\S+ +1 +500`, shown)
		require.NotContains(t, shown, "x-shop=7")
		require.Contains(t, command(0, "list", "--troubled").stdout, made.ID)
		require.NotContains(t, command(0, "list", "--troubled").stdout, "other")
		delivery := whole.Attempts[0].Delivery
		about := "the delivery of order.placed to the endpoint " + made.ID + " of tenant acme"
		require.Contains(t, waybill(t, "why", delivery, "-c", file).stdout, "which is:    "+about)
		require.Contains(t, waybill(t, "parked", "show", delivery, "-c", file).stdout, about)
		require.Regexp(t, `_webhooks +`+made.ID+`/k`, waybill(t, "parked", "list", "-c", file).stdout)
		require.Contains(t, waybill(t, "config", "explain", "_webhooks", "-c", file).stdout, "_webhooks (the delivery of a notification to a customer's endpoint)")
		shop.set(http.StatusOK, rotated.Secret)
		require.Contains(t, command(0, "recover", made.ID, "--since", "1h").stdout, "recovered 1 delivery (action ")
		require.Equal(t, []string{`order.placed {"n": 3}7`}, shop.await(t, 1))
		require.Eventually(t, func() bool {
			whole = endpoint.Whole{}
			as(&whole, "show", made.ID)
			return whole.FailingSince.IsZero()
		}, patience, 50*time.Millisecond)

		require.Equal(t, "disabled "+made.ID+"\n", command(0, "disable", made.ID, "--reason", "moving\x07").stdout)
		require.Equal(t, made.ID+" is disabled already\n", command(0, "disable", made.ID).stdout)
		require.Contains(t, command(0, "show", made.ID).stdout, `disabled by a person: moving\a`)
		require.Contains(t, command(exitFailed, "recover", made.ID, "--since", "12:00").stderr, "the endpoint is disabled")
		require.NotContains(t, command(0, "list", "--troubled").stdout, made.ID)
		require.Equal(t, "enabled "+made.ID+"\n", command(0, "enable", made.ID).stdout)
		var updated endpoint.View
		as(&updated, "update", made.ID, "--when", "", "--header", "X-SHOP=", "--rate", "10/s")
		require.Empty(t, updated.When)
		require.Empty(t, updated.Headers)
		require.Equal(t, made.Description, updated.Description)
		o.order(t, 1, "acme")
		require.Equal(t, []string{`order.placed {"n": 1}`}, shop.await(t, 1))

		require.Contains(t, command(exitUsage, "delete", made.ID, "--json").stderr, "use --yes")
		r := answer(t, "n\n", "endpoints", "delete", made.ID, "-c", file)
		require.Equal(t, made.ID+" is the endpoint of tenant acme at "+shop.URL+". Delete it? [y/N] nothing was deleted\n", r.stdout)
		r = answer(t, "y\n", "endpoints", "delete", made.ID, "-c", file)
		require.Contains(t, r.stdout, "deleted "+made.ID)
		require.Contains(t, command(exitFailed, "show", made.ID).stderr, "unknown endpoint")
		require.Contains(t, command(exitFailed, "delete", made.ID, "--yes").stderr, "unknown endpoint")
		require.NotContains(t, command(0, "list").stdout, made.ID)

		end := f.end(t)
		require.Zero(t, end.code, end.stderr)
		require.Equal(t, 1, strings.Count(end.stderr, "level=ERROR"), "only the dead delivery: %s", end.stderr)
		var actions []store.Action
		require.NoError(t, json.Unmarshal([]byte(waybill(t, "actions", "--json", "-c", file).stdout), &actions))
		done := make(map[string]int)
		for _, a := range actions {
			done[a.Name]++
			require.NotEmpty(t, a.EndedAt)
			text, err := json.Marshal(a)
			require.NoError(t, err)
			require.NotContains(t, string(text), "whsec_")
			require.NotContains(t, string(text), shop.URL)
			if a.Name == "disable endpoint" {
				require.Equal(t, "moving\x07", a.Reason)
			}
		}
		require.Equal(t, map[string]int{"add endpoint": 2, "test endpoint": 4, "rotate endpoint": 1, "requeue": 1, "disable endpoint": 1, "enable endpoint": 1, "update endpoint": 1, "delete endpoint": 1}, done)
	})
}

func TestCommandsOfEndpointsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("whsec_bmV2ZXIgdG8gYmUgdXNlZCBpbiBhIHRlc3Qh\n"), 0o600))
	file := writeFile(t, o.selling(near))
	without := writeFile(t, o.scheduling("http://127.0.0.1:1", "every: 1s"))
	keys := writeFile(t, o.selling(near+", encryption_keys: [\"${WEBHOOKS_KEY}\"]"))
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "there is no waybill.yaml in this folder, and endpoints need the settings of its sink of kind webhooks", []string{"list", "--database", o.address}},
		{exitUsage, "has no sink of kind webhooks", []string{"list", "-c", without}},
		{exitUsage, "WEBHOOKS_KEY", []string{"list", "-c", keys}},
		{exitUsage, "invalid endpoint: tenant: is missing; name whose endpoint it is; url: is missing", []string{"add", "-c", file}},
		{exitUsage, `rate: "9" is not a rate`, []string{"add", "-c", file, "--tenant", "a", "--url", "https://a.example", "--rate", "9"}},
		{exitUsage, "--header has no =: write NAME=VALUE", []string{"add", "-c", file, "--tenant", "a", "--url", "https://a.example", "--header", "token"}},
		{exitUsage, "--secret-file: open", []string{"add", "-c", file, "--tenant", "a", "--secret-file", "missing"}},
		{exitUsage, "name a command before its flags", []string{"--tenant", "a"}},
		{exitUsage, `unknown command "lst"`, []string{"lst"}},
		{exitUsage, "give the id of an endpoint", []string{"show", "-c", file}},
		{exitUsage, "--since is missing", []string{"recover", "x", "-c", file}},
		{exitUsage, "use a time like", []string{"recover", "x", "-c", file, "--since", "noon"}},
		{exitFailed, `unknown endpoint "x"`, []string{"recover", "x", "-c", file, "--since", "2h"}},
		{exitFailed, `unknown endpoint "x"`, []string{"rotate", "x", "-c", file}},
		{exitFailed, `unknown endpoint "x"`, []string{"update", "x", "-c", file, "--rate", "9/s"}},
		{exitUsage, "nothing is to change: name a setting, such as --url", []string{"update", "x", "-c", file}},
		{exitFailed, "connect", []string{"list", "-c", file, "--database", "postgres://a@127.0.0.1:1/a?connect_timeout=1"}},
	} {
		r := waybill(t, append([]string{"endpoints"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%s: %s", c.args, r.stderr)
		require.Contains(t, r.stderr, c.want)
	}
	r := waybill(t, "endpoints", "add", "--tenant", "a", "--url", "https://a.example", "--secret-file", secret, "--json", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "whsec_bmV2ZXIgdG8gYmUgdXNlZCBpbiBhIHRlc3Qh")
	r = waybill(t, "actions", "--database", o.address)
	require.Equal(t, 1, strings.Count(r.stdout, "endpoint\":"), "what was refused is no action: %s", r.stdout)
}

func TestEachOfSeveralDatabasesHasItsEndpoints(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := writeFile(t, fmt.Sprintf(`
databases: {eu: "sqlite:%[1]s/eu.db", us: "sqlite:%[1]s/us.db"}
sinks: {customers: {kind: webhooks, with: {%s}}}
routes: {"order.*": [customers]}
`, folder, near))
	r := waybill(t, "migrate", "-c", file, "--in", "*")
	require.Zero(t, r.code, r.stderr)
	r = waybill(t, "endpoints", "add", "--tenant", "acme", "--url", "https://acme.example", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "choose one with --in: eu, us")
	r = waybill(t, "endpoints", "add", "--tenant", "acme", "--url", "https://acme.example", "-c", file, "--in", "us", "--json")
	require.Zero(t, r.code, r.stderr)
	var made endpoint.View
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &made))
	r = waybill(t, "endpoints", "list", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?s)database eu\n\nno endpoint matches\n.*database us\n.*`+made.ID, r.stdout)
	r = waybill(t, "endpoints", "show", made.ID, "-c", file, "--in", "eu")
	require.Equal(t, exitFailed, r.code)

	address := observed(t, file)
	f := startForward(t, "-c", file)
	awaitPage(t, address, "/in/us/api/v1/endpoints", http.StatusOK, made.ID)
	awaitPage(t, address, "/in/us/endpoints?all=1", http.StatusOK, made.ID)
	awaitPage(t, address, "/in/eu/api/v1/endpoints", http.StatusOK, `"endpoints": []`)
	require.Zero(t, f.end(t).code)
}

func TestForwardServesTheEndpointsOfItsOutbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		file := writeFile(t, o.selling(near))
		r := waybill(t, "endpoints", "add", "--tenant", "acme", "--url", "https://acme.example", "-c", file)
		require.Zero(t, r.code, r.stderr)
		address := observed(t, file)
		f := startForward(t, "-c", file)
		awaitPage(t, address, "/api/v1/endpoints", http.StatusOK, "https://acme.example")
		require.Zero(t, f.end(t).code)
		r = waybill(t, "doctor", "--only", "endpoints", "-c", file)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, "of 1 endpoint, 0 fail now; no route takes webhooks.endpoint.disabled")
	})
}

func TestTheConfigurationOfWebhooksIsShownWithoutItsKeys(t *testing.T) {
	t.Parallel()
	const key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	o := outbox{address: "sqlite:outbox.db"}
	file := writeFile(t, o.selling(near+", encryption_keys: ["+key+"], timeout: 3s"))
	r := waybill(t, "config", "show", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.NotContains(t, r.stdout, key)
	for _, want := range []string{"encryption_keys: ['***']", "secret_overlap: 24h", "mode: off", "allow_http: true", "timeout: 3s", "threshold: 256"} {
		require.Contains(t, r.stdout, want)
	}
	r = waybill(t, "config", "check", "--offline", "-c", writeFile(t, o.selling("guard: off, encryption_keys: [short], tenant: metadata.endpoint")))
	require.Equal(t, exitUsage, r.code)
	for _, want := range []string{"sinks.customers.with.guard", "sinks.customers.with.encryption_keys[0]: is not base64 of 32 bytes", "sinks.customers.with.tenant: the sink itself uses metadata.endpoint"} {
		require.Contains(t, r.stderr, want)
	}
	require.NotContains(t, r.stderr, "short")
}
