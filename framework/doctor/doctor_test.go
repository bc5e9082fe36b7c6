package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

// patience limits the wait for something that should happen at once.
const patience = 30 * time.Second

// server is a PostgreSQL server with fsync on, as in production. The shared server of other
// packages has it off.
var server = sync.OnceValues(func() (*postgrestest.Server, error) {
	return postgrestest.Start(context.Background(), postgrestest.Options{
		Durable: true, Private: true,
		Settings: map[string]string{"max_prepared_transactions": "10", "synchronous_commit": "local"},
	})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if s, err := server(); err == nil {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

type orderPlaced struct{ ID string }

// fixture is an outbox to examine.
type fixture struct {
	*testing.T
	Subject
	Options
	limits
	dsn      string
	store    forwarder.Store
	examined interface {
		Store
		store.Leases
		AddSchedule(ctx context.Context, name string) error
	}
}

// newFixture returns a fixture with a valid configuration and no database yet.
func newFixture(t *testing.T) *fixture {
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
	c := forwarder.Config{
		Routes: route.Routes{"order.*": route.To("partner")},
		Sinks:  map[string]forwarder.Sink{"partner": {Sink: taking{}}},
		Types:  types,
	}
	x := &fixture{T: t, Subject: Subject{Forwarder: &c, Address: "postgres://localhost/app"}, Options: Options{Timeout: time.Minute}, limits: usual}
	x.disk = func(path string) (free, all int64, known bool) {
		_, _, known = diskOf(path)
		return 50 << 30, 100 << 30, known // fixed figures, since the machine's disk may be full
	}
	return x
}

// taking is a sink that accepts everything.
type taking struct{}

func (taking) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "taken", nil
}

func onPostgres(t *testing.T, migrated bool) *fixture {
	t.Helper()
	s, err := server()
	require.NoError(t, err)
	dsn, drop, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	t.Cleanup(drop)
	x := newFixture(t)
	x.reopen(dsn)
	if migrated {
		x.migrate(postgres.Config{})
	}
	return x
}

// reopen opens the database at another address.
func (x *fixture) reopen(dsn string) {
	x.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(x, err)
	x.Cleanup(func() { _ = db.Close() })
	x.dsn, x.DB, x.PostgreSQL = dsn, db, &postgres.Config{Listen: dsn}
}

func (x *fixture) migrate(c postgres.Config) {
	x.Helper()
	_, err := postgres.Migrate(x.Context(), x.DB, c)
	require.NoError(x, err)
	s, err := postgres.Open(x.Context(), x.DB, *x.PostgreSQL)
	require.NoError(x, err)
	x.store, x.examined = s, s
}

func inSQLite(t *testing.T) *fixture {
	t.Helper()
	x := newFixture(t)
	x.dsn = filepath.Join(t.TempDir(), "outbox.db")
	db, err := sqlite.OpenDB(x.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	x.DB, x.SQLite = db, &sqlite.Config{}
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	x.store, x.examined = s, s
	return x
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(x *fixture)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(onPostgres(t, true)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(inSQLite(t)) })
}

func (x *fixture) exec(statement string, args ...any) {
	x.Helper()
	_, err := x.DB.ExecContext(x.Context(), statement, args...)
	require.NoError(x, err, statement)
}

// ago formats a time in the past as both databases read it.
func ago(d time.Duration) string {
	return time.Now().Add(-d).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func (x *fixture) publish(typ string, occurred time.Duration) {
	x.Helper()
	x.exec(`INSERT INTO outbox (type, key, payload, occurred_on) VALUES ($1, 'k', '{}', $2)`, typ, ago(occurred))
}

func (x *fixture) park(sink, state, key string, due any) {
	x.Helper()
	x.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		VALUES ($1, (SELECT coalesce(max("offset"), 0) + 1 FROM outbox_parked), 0, 'i', 'order.placed', 1, $2, $3, '{}', '{}', $4, 1, $5)`, sink, key, ago(time.Hour), state, due)
}

// forward starts a forwarder and waits until it has settled everything. The forwarder runs until end
// is called or the test ends.
func (x *fixture) forward() (end func()) {
	x.Helper()
	c := *x.Forwarder
	c.Store = x.store
	f, err := forwarder.New(c)
	require.NoError(x, err)
	ctx, stop := context.WithCancel(x.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		require.NoError(x, <-ended)
	})
	x.Cleanup(end)
	require.Eventually(x, func() bool {
		m, err := x.examined.Membership(x.Context())
		require.NoError(x, err)
		holders, err := x.examined.Holders(x.Context(), nil)
		require.NoError(x, err)
		owned := len(m.Lanes) > 0 && len(holders) == 0
		for _, l := range m.Lanes {
			owned = owned && l.Owner != ""
		}
		return owned
	}, patience, 10*time.Millisecond)
	return end
}

// examine runs one check.
func (x *fixture) examine(id string) Finding {
	x.Helper()
	o := x.Options
	o.Only = []string{id}
	found := run(x.Context(), x.Subject, o, x.limits)
	require.Len(x, found, 1, id)
	return found[0]
}

// has asserts the result of one check.
func (x *fixture) has(id string, want Status, text string) Finding {
	x.Helper()
	f := x.examine(id)
	for end := time.Now().Add(patience); f.Status == Skip && want != Skip && time.Now().Before(end); {
		f = x.examine(id) // on a machine that stalls, connecting may take too long
	}
	require.Equal(x, want, f.Status, "%+v", f)
	require.Regexp(x, text, f.Text)
	require.NotEmpty(x, f.Why)
	if want == Warn || want == Fail {
		require.NotEmpty(x, f.Fix)
	}
	return f
}

func TestAHealthyOutboxIsOK(t *testing.T) {
	t.Parallel()
	onEach(t, func(x *fixture) {
		x.publish("order.placed", 0)
		x.forward()
		for _, f := range run(x.Context(), x.Subject, x.Options, x.limits) {
			require.Equal(x, OK, f.Status, "%+v", f)
			require.Empty(x, f.Fix)
		}
		require.Empty(x, Run(x.Context(), x.Subject, Options{Only: []string{"lanes"}, Skip: []string{"lanes"}}))
	})
}

func TestAFreshOutboxIsOK(t *testing.T) {
	t.Parallel()
	onEach(t, func(x *fixture) {
		for _, f := range run(x.Context(), x.Subject, x.Options, x.limits) {
			require.Equal(x, OK, f.Status, "%+v", f)
		}
	})
}

func TestOptionsWithUnknownChecksAreRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, Options{Only: []string{"lanes"}, Skip: IDs()}.Validate())
	require.ErrorContains(t, Options{Skip: []string{"lane"}}.Validate(), `there is no check "lane": use configuration, database`)
	require.Error(t, Options{Timeout: -1}.Validate())
}

func TestEachCheckHasASectionAndEachSectionACheck(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/doctor.md")
	require.NoError(t, err)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, match[1])
	}
	require.Equal(t, IDs(), sections)
}

func TestADatabaseThatCannotBeReachedIsOneFailure(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.reopen("postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	for _, f := range run(t.Context(), x.Subject, x.Options, x.limits) {
		want := Skip
		switch f.ID {
		case "database":
			want = Fail
		case "configuration", "sinks":
			want = OK
		}
		require.Equal(t, want, f.Status, "%+v", f)
	}
}

func TestMistakesOfTheConfigurationAreAFailure(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.reopen("postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	x.Mistakes = errors.New("waybill.yaml:3: routes: there is none")
	x.has("configuration", Fail, "routes: there is none")
}

func TestAnOutboxThatIsNotMigratedIsOneFailure(t *testing.T) {
	t.Parallel()
	x := onPostgres(t, false)
	x.has("schema", Fail, "not migrated")
	for _, id := range []string{"log", "history", "indexes", "lanes", "dead", "privileges", "disk", "listen", "captures"} {
		x.has(id, Skip, "see schema")
	}
}

func TestAnswersThatDoNotComeInTimeAreWarnings(t *testing.T) {
	t.Parallel()
	x := onPostgres(t, true)
	tx, err := x.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE outbox_parked IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	x.Timeout = 5 * time.Second // connecting takes less
	x.has("dead", Warn, "no answer within 5s")
	x.Timeout = time.Minute
	x.has("schedules", OK, "")
}

func inTx(x *fixture, statements ...string) (tx *sql.Tx) {
	x.Helper()
	tx, err := x.DB.BeginTx(x.Context(), nil)
	require.NoError(x, err)
	x.Cleanup(func() { _ = tx.Rollback() })
	for _, s := range statements {
		_, err := tx.ExecContext(x.Context(), s)
		require.NoError(x, err, s)
	}
	return tx
}
