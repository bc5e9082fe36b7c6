package program

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
)

// role creates a role with exactly the printed grants, and returns the database's address with this role.
func (o outbox) role(t *testing.T, duty string) (address string) {
	t.Helper()
	var role string
	require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT 'role "$$''\ $q1$' || gen_random_uuid()::text`).Scan(&role))
	quoted := `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	_, err := o.db.ExecContext(t.Context(), `CREATE ROLE `+quoted+` LOGIN`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := o.db.ExecContext(context.WithoutCancel(t.Context()), `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted)
		require.NoError(t, err)
	})
	args := []string{"migrate", "--print-grants", role, "--database", o.address}
	if duty != "forwarder" { // forwarder is the default
		args = append(args, "--for", duty)
	}
	r := waybill(t, args...)
	require.Zero(t, r.code, r.stderr)
	_, err = o.db.ExecContext(t.Context(), r.stdout)
	require.NoError(t, err, r.stdout)
	u, err := url.Parse(o.address)
	require.NoError(t, err)
	u.User = url.User(role)
	return strings.ReplaceAll(u.String(), "$", "%24") // which a configuration would expand
}

// roleOf returns the role in an address that role returned.
func roleOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u.User.Username()
}

func (o outbox) count(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, o.db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestRolesWithThePrintedGrantsDoTheirWork(t *testing.T) {
	t.Parallel()
	for name, partitionRows := range map[string]string{"one table": "0", "partitioned": "10"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			o := databases["postgres"](t)
			r := waybill(t, "migrate", "--partition-rows", partitionRows, "--database", o.address)
			require.Zero(t, r.code, r.stderr)
			publisher, forwarder, operator := o.role(t, "publisher"), o.role(t, "forwarder"), o.role(t, "operator")

			db, err := postgres.OpenDB(publisher)
			require.NoError(t, err)
			defer db.Close()
			s, err := postgres.Open(ctx, db, postgres.Config{})
			require.NoError(t, err)
			p, err := outboxes.New(registry.New(), s, outboxes.Config{})
			require.NoError(t, err)
			publish := func(occurredOn time.Time, ids ...string) {
				t.Helper()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer tx.Rollback()
				for _, id := range ids {
					require.NoError(t, p.Append(ctx, tx, notification.Envelope{
						ID: id, Type: "order.placed", Version: 1, Key: id, OccurredOn: occurredOn,
						Metadata: notification.Metadata{"tenant": "a"}, Payload: []byte(fmt.Sprintf("%q", id)),
					}))
				}
				require.NoError(t, tx.Commit())
			}
			require.NoError(t, s.Announce(ctx))
			scheduled := func(ids ...string) {
				t.Helper()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer tx.Rollback()
				for _, id := range ids {
					require.NoError(t, p.Append(ctx, tx, notification.Envelope{ID: id, Type: "order.placed", Key: id, Payload: []byte("{}"), DeliverAt: time.Now().Add(time.Hour)}))
				}
				require.NoError(t, tx.Commit())
			}
			cancelled := func(id string) {
				t.Helper()
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer tx.Rollback()
				n, err := p.CancelID(ctx, tx, id)
				require.NoError(t, err)
				require.Equal(t, 1, n)
				for _, want := range []bool{true, false} {
					free, err := s.Claim(ctx, tx, store.Claim{Type: "order.placed", Key: id, Period: time.Hour})
					require.NoError(t, err)
					require.Equal(t, want, free)
					if !free {
						require.NoError(t, s.Unclaim(ctx, tx, store.Claim{Type: "order.placed", Key: id}))
					}
				}
				require.NoError(t, tx.Commit())
			}
			scheduled("cancelled at once", "cancelled later")
			cancelled("cancelled at once")

			var mended atomic.Bool
			destination := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				body, _ := io.ReadAll(request.Body)
				if strings.Contains(string(body), "refused") && !mended.Load() {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
			}))
			defer destination.Close()
			config := func(address string) string {
				return writeFile(t, fmt.Sprintf(`
database: %q
outbox: {receipts: true, retention: 5m, lanes: 2}
sinks: {partner: {kind: http, with: {url: %q}}}
routes: {"order.*": [partner]}
`, address, destination.URL))
			}
			var old []string
			for n := range 60 {
				old = append(old, fmt.Sprint("old-", n))
			}
			publish(time.Now().Add(-time.Hour), old...)
			publish(time.Now(), "fresh", "refused-1", "refused-2")
			f := startForward(t, "-c", config(forwarder))
			eventually := func(what, query string, want int) {
				t.Helper()
				require.Eventually(t, func() bool { return o.count(t, query) == want }, patience, 20*time.Millisecond, what)
			}
			eventually("parked", `SELECT count(*) FROM outbox_parked WHERE state = 'scheduled'`, 1)
			cancelled("cancelled later")
			eventually("claims", `SELECT count(*) FROM outbox_unique`, 0)
			eventually("retention", `SELECT count(*) FROM outbox`, 5)
			eventually("dead letters", `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`, 2)
			eventually("receipts", `SELECT count(*) FROM outbox_receipts`, 61)

			as := config(operator)
			command := func(args ...string) string {
				t.Helper()
				r := waybill(t, append(args, "-c", as)...)
				require.Zero(t, r.code, "%v: %s%s", args, r.stdout, r.stderr)
				return r.stdout
			}
			require.Contains(t, command("status"), "partner")
			require.Contains(t, command("why", "fresh"), "delivered")
			require.Contains(t, command("why", "cancelled at once"), "cancelled at")
			require.Contains(t, command("why", "cancelled later"), "cancelled at")
			require.Contains(t, command("why", "refused-1"), "dead")
			command("types", "--all")
			require.Contains(t, command("export", "--sink", "partner"), `"fresh"`)
			require.Contains(t, command("trace", "refused-1"), "partner dead")
			command("parked", "list", "--sink", "partner")
			command("parked", "discard", "--sink", "partner", "--id", "refused-1", "--yes")
			eventually("discarded", `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`, 1)
			mended.Store(true)
			command("parked", "requeue", "--sink", "partner", "--yes")
			eventually("requeued", `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`, 0)
			command("replay", "--sink", "partner", "--since", "6h", "--yes")
			require.Equal(t, 1, o.count(t, `SELECT count(*) FROM outbox_actions WHERE action = 'replay' AND count > 0`))
			command("pause", "partner")
			command("resume", "partner")
			require.Contains(t, command("privacy", "purge", "--key", "fresh", "--id", "cancelled later", "--yes"), "purged ")
			eventually("purged", `SELECT count(*) FROM outbox WHERE id IN ('fresh', 'cancelled later')`, 0)
			require.Contains(t, command("actions"), "replay")

			r = f.end(t)
			require.Zero(t, r.code, r.stderr)
			require.NotContains(t, r.stderr, "permission denied")
			said := 0
			if partitionRows != "0" {
				said = 1
			}
			require.Equal(t, said, strings.Count(r.stderr, "partitions are neither created nor dropped"), r.stderr)
			command("forget", "partner", "--yes")

			// The roles have no other privileges.
			for address, refused := range map[string][]string{
				publisher: {`SELECT payload FROM outbox`, `SELECT metadata FROM outbox_parked`, `DELETE FROM outbox`, `DELETE FROM outbox_cancelled`, `DELETE FROM outbox_unique`, `INSERT INTO outbox (transaction_id, type, payload) VALUES ('5', 'a', '1')`, `INSERT INTO outbox_attempts (id) VALUES ('1')`, `DELETE FROM outbox_attempts`},
				forwarder: {`INSERT INTO outbox (transaction_id, type, payload) VALUES ('5', 'a', '1')`, `DELETE FROM outbox_endpoints`, `UPDATE outbox SET type = 'b'`, `UPDATE outbox_actions SET count = 1`},
				operator:  {`INSERT INTO outbox (type, payload) VALUES ('a', '1')`, `UPDATE outbox SET type = 'b'`, `DELETE FROM outbox_actions`},
			} {
				db, err := sql.Open("postgres", address)
				require.NoError(t, err)
				defer db.Close()
				for _, statement := range refused {
					_, err := db.ExecContext(ctx, statement)
					require.ErrorContains(t, err, "permission denied", statement)
				}
			}
		})
	}
}

func TestPrintedGrantsNameTheSchema(t *testing.T) {
	t.Parallel()
	r := waybillWith(t, []string{"WAYBILL_DATABASE=postgres://nobody@127.0.0.1:1/nothing", "WAYBILL_OUTBOX_PREFIX=billing.order"},
		"migrate", "--print-grants", "shop", "--for", "publisher")
	require.Equal(t, result{stdout: `GRANT USAGE ON SCHEMA "billing" TO "shop";
GRANT INSERT (id, type, version, key, occurred_on, deliver_at, metadata, payload) ON TABLE "billing"."order" TO "shop";
GRANT USAGE ON SEQUENCE "billing"."order_offset_seq" TO "shop";
GRANT SELECT ("offset", id, type, key, deliver_at) ON TABLE "billing"."order" TO "shop";
GRANT SELECT ("offset", id, type, key, state, due_at) ON TABLE "billing"."order_parked" TO "shop";
GRANT SELECT, INSERT ("offset", id) ON TABLE "billing"."order_cancelled" TO "shop";
GRANT SELECT, INSERT (type, key, until), UPDATE (until) ON TABLE "billing"."order_unique" TO "shop";
GRANT SELECT, INSERT (id, subject, wrapped, under) ON TABLE "billing"."order_keys" TO "shop";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "billing"."order_endpoints" TO "shop";
GRANT SELECT ON TABLE "billing"."order_attempts" TO "shop";
GRANT EXECUTE ON FUNCTION "billing"."order_publish" TO "shop";
GRANT EXECUTE ON FUNCTION "billing"."order_cancel" TO "shop";
-- Anyone who may create functions in the schema of the outbox can replace those of Waybill:
-- REVOKE CREATE ON SCHEMA "billing" FROM PUBLIC;
`}, r)
}

func TestInvalidGrantsAreRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"use publisher, consumer, forwarder, scheduler or operator": {"--print-grants", "shop", "--for", "king"},
		"--for belongs to --print-grants":                           {"--for", "publisher"},
		"leave out --print and --json":                              {"--print-grants", "shop", "--print"},
		"SQLite has no roles":                                       {"--print-grants", "shop", "--database", "sqlite:x.db"},
	} {
		r := waybill(t, append([]string{"migrate"}, args...)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, want)
	}
}

func TestRolesCallTheFunctionsOfTheirDuties(t *testing.T) {
	t.Parallel()
	for name, partitionRows := range map[string]string{"one table": "0", "partitioned": "10"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := databases["postgres"](t)
			r := waybill(t, "migrate", "--partition-rows", partitionRows, "--database", o.address)
			require.Zero(t, r.code, r.stderr)
			for role, calls := range map[string][]string{
				"publisher": {`SELECT outbox_publish('order.placed', 'o-1', '{}')`},
				"consumer":  {`SELECT outbox_first('invoices', 'n-1')`, `SELECT outbox_first('invoices', 'n-1')`},
			} {
				db, err := postgres.OpenDB(o.role(t, role))
				require.NoError(t, err)
				defer db.Close()
				for _, call := range calls {
					_, err := db.ExecContext(t.Context(), call)
					require.NoError(t, err, call)
				}
				if role == "consumer" {
					s, err := postgres.Open(t.Context(), db, postgres.Config{})
					require.NoError(t, err)
					first, err := inbox.New(s).Once(t.Context(), db, "invoices", "n-1", func(context.Context, *sql.Tx) error { return nil })
					require.NoError(t, err)
					require.False(t, first)
				}
			}
		})
	}
}
