package encoding_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

func TestIdsAreAskedForOnceForEachSubject(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatAvro)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 20 {
				if _, err := e.Encode(t.Context(), "orders", order(payload)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, r.requests.Load())
	_, err := e.Encode(t.Context(), "others", order(payload))
	require.NoError(t, err)
	require.EqualValues(t, 2, r.requests.Load())
}

func TestARegistryThatIsAwayIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*registry){
		"it fails":          func(r *registry) { r.answer(503, "upstream is down") },
		"it knows nothing":  func(r *registry) { r.answer(200, `{}`) },
		"it talks too much": func(r *registry) { r.answer(200, `{"id": 1, "schema": "`+string(make([]byte, 5<<20))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			e := newEncoder(t, orders(), r, encoding.FormatAvro)
			fail(r)
			for range 10 {
				_, err := e.Encode(t.Context(), "orders", order(payload))
				requireClass(t, sinks.ClassUnavailable, err)
				require.ErrorIs(t, err, encoding.ErrRegistry)
				require.ErrorContains(t, err, `the subject "orders-value"`)
			}
			r.recover()
			require.Eventually(t, func() bool {
				_, err := e.Encode(t.Context(), "orders", order(payload))
				return err == nil
			}, time.Minute, 50*time.Millisecond)
		})
	}
}

func TestARegistryThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	var reachable sync.Mutex
	reachable.Lock()
	in := sinks.Instance{Contracts: orders(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !reachable.TryLock() {
			return nil, errors.New("no route")
		}
		reachable.Unlock()
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	e, err := encoding.New(in, encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}})
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Encode(t.Context(), "orders", order(payload))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorContains(t, err, "no route")
	requireClass(t, sinks.ClassUnavailable, e.CheckHealth(t.Context()))
	reachable.Unlock()
	require.NoError(t, e.CheckHealth(t.Context()))
	require.Eventually(t, func() bool {
		_, err := e.Encode(t.Context(), "orders", order(payload))
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

func TestASilentRegistryEndsWithTheDelivery(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	asked := make(chan struct{}, 1)
	r.Intercept(func(_ http.ResponseWriter, request *http.Request) bool {
		_, _ = io.Copy(io.Discard, request.Body) // the server notices the end of a connection only then
		select {
		case asked <- struct{}{}:
		default:
		}
		<-request.Context().Done()
		return true
	})
	e := newEncoder(t, orders(), r, encoding.FormatAvro)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := e.Encode(ctx, "orders", order(payload))
	require.ErrorIs(t, err, context.Canceled)
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = e.Encode(late, "orders", order(payload))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorContains(t, err, `no id of the subject "orders-value" in time`)

	e.Close()
	_, err = e.Encode(t.Context(), "others", order(payload))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorIs(t, err, encoding.ErrClosed)
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	incompatible := `{"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema for subject \"orders-value\", details: [{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field total has no default', by s3cr3t-password}]"}`
	for _, c := range []struct {
		status        int
		body          string
		kind          error
		brief, answer string
	}{
		{401, `{"error_code": 401, "message": "Unauthorized s3cr3t-password"}`, encoding.ErrRegistry, "HTTP 401; is encoding.registry.auth right", "Unauthorized ***"},
		{403, `{"error_code": 40301, "message": "User is denied"}`, encoding.ErrRegistry, "HTTP 403, error 40301; is encoding.registry.auth right", "User is denied"},
		{404, `not here`, encoding.ErrRegistry, "HTTP 404; is encoding.registry.url right?", "not here"},
		{404, `{"error_code": 40403, "message": "Schema not found"}`, encoding.ErrNotRegistered, `the subject "orders-value": HTTP 404, error 40403; register it, or set encoding.register: true`, "Schema not found"},
		{409, incompatible, encoding.ErrRefused, "HTTP 409; change the schema, or the compatibility of the subject: Schema being registered is incompatible with an earlier schema for subject \"orders-value\", details: [{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field total has no default', by ***}]", ""},
		{422, `{"error_code": 42201, "message": "Invalid schema"}`, encoding.ErrRefused, "HTTP 422, error 42201: Invalid schema", ""},
		{500, "\x1b[31mfailed\n\nagain", encoding.ErrRegistry, "HTTP 500", "[31mfailed again"},
	} {
		r := newRegistry(t)
		r.answer(c.status, c.body)
		e := newEncoder(t, orders(), r, encoding.FormatAvro, func(config *encoding.Config) {
			config.Registry.Auth = encoding.Auth{User: "u", Password: "s3cr3t-password"}
		})
		_, err := e.Encode(t.Context(), "orders", order(payload))
		requireClass(t, sinks.ClassUnavailable, err)
		require.ErrorIs(t, err, c.kind)
		require.Contains(t, sinks.Brief(err), c.brief)
		require.Contains(t, sinks.AnswerOf(err), c.answer)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

func TestTheRegistrysOwnWordsAreCut(t *testing.T) {
	t.Parallel()
	for _, status := range []int{409, 500} {
		r := newRegistry(t)
		r.answer(status, strings.Repeat("no, ", 1<<20))
		_, err := newEncoder(t, orders(), r, encoding.FormatAvro).Encode(t.Context(), "orders", order(payload))
		requireClass(t, sinks.ClassUnavailable, err)
		require.Less(t, len(err.Error()), 3<<10)
	}
}

func TestIncompatibilitiesAreAskedFor(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.Intercept(func(w http.ResponseWriter, request *http.Request) bool {
		if request.URL.Path == "/compatibility/subjects/orders-value/versions" && request.URL.Query().Get("verbose") == "true" {
			_, _ = w.Write([]byte(`{"is_compatible": false, "messages": ["TYPE_MISMATCH: /fields/0 was a string"]}`))
		} else {
			w.WriteHeader(409)
		}
		return true
	})
	_, err := newEncoder(t, orders(), r, encoding.FormatAvro).Encode(t.Context(), "orders", order(payload))
	requireClass(t, sinks.ClassUnavailable, err)
	require.Contains(t, sinks.Brief(err), "TYPE_MISMATCH: /fields/0 was a string")
}

func TestAThrottlingRegistrySaysUntilWhen(t *testing.T) {
	t.Parallel()
	for retry, want := range map[string]sinks.Class{"30": sinks.ClassThrottled, "": sinks.ClassUnavailable, "soon": sinks.ClassUnavailable, "99999999999": sinks.ClassThrottled} {
		r := newRegistry(t)
		r.answer(429, "slow down", "Retry-After", retry)
		_, err := newEncoder(t, orders(), r, encoding.FormatAvro).Encode(t.Context(), "orders", order(payload))
		requireClass(t, want, err)
		_, until := sinks.Classify(err)
		require.True(t, want != sinks.ClassThrottled || until.After(time.Now()) && until.Before(time.Now().Add(61*time.Minute)))
	}
}

func TestWithoutRegisterASchemaMustBeInTheRegistry(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatAvro, func(c *encoding.Config) { c.Register = false })
	_, err := e.Encode(t.Context(), "orders", order(payload))
	requireClass(t, sinks.ClassUnavailable, err)
	require.ErrorIs(t, err, encoding.ErrNotRegistered)
	require.ErrorContains(t, err, `"orders-value"`)
	require.False(t, r.SubjectExists("orders-value"))

	text, err := encoding.DeriveAvro("order.placed", orderJSON)
	require.NoError(t, err)
	_, _, err = r.RegisterSchema("orders-value", sr.Schema{Schema: text, Type: sr.TypeAvro})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := e.Encode(t.Context(), "orders", order(payload))
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

func TestASchemaIsAlsoFoundInItsNormalizedForm(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.Intercept(func(w http.ResponseWriter, request *http.Request) bool {
		if request.URL.Query().Get("normalize") == "true" {
			_, _ = w.Write([]byte(`{"id": 7}`))
		} else {
			w.WriteHeader(404)
			_, _ = w.Write([]byte(`{"error_code": 40403}`))
		}
		return true
	})
	e := newEncoder(t, orders(), r, encoding.FormatAvro, func(c *encoding.Config) { c.Register = false })
	encoded, err := e.Encode(t.Context(), "orders", order(payload))
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x00\x07", string(encoded[:5]))
}

func TestTheRegistryGetsTheCredentials(t *testing.T) {
	t.Parallel()
	for expected, auth := range map[string]encoding.Auth{
		"Basic dTpw":     {User: "u", Password: "p"},
		"Bearer tok.en-": {Token: "tok.en-"},
	} {
		r := newRegistry(t, srfake.WithAuth(expected))
		e := newEncoder(t, orders(), r, encoding.FormatAvro, func(c *encoding.Config) { c.Registry.Auth = auth })
		_, err := e.Encode(t.Context(), "orders", order(payload))
		require.NoError(t, err)
		_, err = newEncoder(t, orders(), r, encoding.FormatAvro).Encode(t.Context(), "orders", order(payload))
		requireClass(t, sinks.ClassUnavailable, err)
	}
}

func TestIdsHave32Bits(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"2147483647": "", "2147483648": "ids of 32 bits", "4294967297": "ids of 32 bits", "99999999999999999999": "99999", "0": "no id", "-1": "no id"} {
		for _, register := range []bool{true, false} {
			r := newRegistry(t)
			r.answer(200, `{"id": `+id+`}`)
			encoded, err := newEncoder(t, orders(), r, encoding.FormatAvro, func(c *encoding.Config) { c.Register = register }).Encode(t.Context(), "orders", order(payload))
			if want == "" {
				require.NoError(t, err)
				require.Equal(t, "\x00\x7f\xff\xff\xff", string(encoded[:5]))
				continue
			}
			requireClass(t, sinks.ClassUnavailable, err)
			require.ErrorIs(t, err, encoding.ErrRegistry)
			require.ErrorContains(t, err, want)
		}
	}
}

func TestCredentialsInClearTextAreWarnedOfOnceTheyAreUsed(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for auth, want := range map[encoding.Auth]int{{}: 0, {User: "u", Password: "hush-hush"}: 1} {
		var log bytes.Buffer
		in := sinks.Instance{Name: "events", Contracts: orders(), Logger: slog.New(slog.NewTextHandler(&log, nil)).With("sink", "events")}
		e, err := encoding.New(in, encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL(), Auth: auth}})
		require.NoError(t, err)
		t.Cleanup(e.Close)
		require.NoError(t, e.CheckHealth(t.Context()))
		require.Empty(t, log.String())
		for _, topic := range []string{"a", "b"} {
			_, err := e.Encode(t.Context(), topic, order(payload))
			require.NoError(t, err)
		}
		require.Equal(t, want, strings.Count(log.String(), "in clear text"))
		require.Equal(t, want, strings.Count(log.String(), "sink="))
		require.NotContains(t, log.String(), "hush")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	r, elsewhere := newRegistry(t), newRegistry(t)
	target := strings.Replace(elsewhere.URL(), "http://", "http://u:hush-other@", 1)
	r.Intercept(func(w http.ResponseWriter, request *http.Request) bool {
		http.Redirect(w, request, target+request.URL.Path+"?token=hush-third", http.StatusTemporaryRedirect)
		return true
	})
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	for _, client := range []*http.Client{nil, {Transport: transport}} {
		in := sinks.Instance{Contracts: orders(), HTTPClient: client}
		for _, register := range []bool{true, false} {
			e, err := encoding.New(in, encoding.Config{Format: encoding.FormatAvro, Register: register, Registry: encoding.Registry{URL: r.URL(), Auth: encoding.Auth{Token: "hush-hush"}}})
			require.NoError(t, err)
			t.Cleanup(e.Close)
			_, encodeErr := e.Encode(t.Context(), "orders", order(payload))
			for _, err := range []error{encodeErr, e.CheckHealth(t.Context())} {
				requireClass(t, sinks.ClassUnavailable, err)
				require.ErrorIs(t, err, encoding.ErrRegistry)
				require.ErrorContains(t, err, "the registry redirects to "+elsewhere.URL())
				require.ErrorContains(t, err, "check encoding.registry.url")
				require.NotContains(t, err.Error(), "hush")
			}
		}
	}
	require.Zero(t, elsewhere.requests.Load())
}

func TestTheProgramsHTTPClientIsUsed(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	used := false
	in := sinks.Instance{Contracts: orders(), HTTPClient: &http.Client{Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		used = true
		request.Close = true
		return http.DefaultTransport.RoundTrip(request)
	})}}
	c := encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}}
	e, err := encoding.New(in, c)
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Encode(t.Context(), "orders", order(payload))
	require.NoError(t, err)
	require.True(t, used)
	c.Registry = encoding.Registry{URL: "https://registry.example", TLS: encoding.TLS{ServerName: "x"}}
	_, err = encoding.New(in, c)
	require.ErrorContains(t, err, "encoding.registry.tls: the connections are made by the program's HTTP client")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
