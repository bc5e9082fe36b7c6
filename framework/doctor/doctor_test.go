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

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// server is a PostgreSQL as people run it: the shared one of other packages has fsync off.
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

// patient is an outbox to examine.
type patient struct {
	*testing.T
	Subject
	Options
	limits
	dsn   string
	store forwarder.Store
	ours  interface {
		Store
		store.Leases
		AddSchedule(ctx context.Context, name string) error
	}
}

// newPatient is healthy: an outbox that is migrated, and a configuration that fits.
func newPatient(t *testing.T) *patient {
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
	c := forwarder.Config{
		Routes: route.Routes{"order.*": route.To("partner")},
		Sinks:  map[string]forwarder.Sink{"partner": {Sink: taking{}}},
		Types:  types,
	}
	p := &patient{T: t, Subject: Subject{Forwarder: &c}, Options: Options{Timeout: 10 * time.Second}, limits: usual}
	p.disk = func(path string) (free, all int64, known bool) {
		_, _, known = diskOf(path)
		return 50 << 30, 100 << 30, known // the disk of the machine may be full
	}
	return p
}

// taking is a sink that takes everything.
type taking struct{}

func (taking) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "taken", nil
}

func onPostgres(t *testing.T, migrated bool) *patient {
	t.Helper()
	s, err := server()
	require.NoError(t, err)
	dsn, drop, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	t.Cleanup(drop)
	p := newPatient(t)
	p.reopen(dsn)
	if migrated {
		p.migrate(postgres.Config{})
	}
	return p
}

// reopen has the patient behind another address.
func (p *patient) reopen(dsn string) {
	p.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(p, err)
	p.Cleanup(func() { _ = db.Close() })
	p.dsn, p.DB, p.PostgreSQL = dsn, db, &postgres.Config{Listen: dsn}
}

func (p *patient) migrate(c postgres.Config) {
	p.Helper()
	_, err := postgres.Migrate(p.Context(), p.DB, c)
	require.NoError(p, err)
	s, err := postgres.Open(p.Context(), p.DB, *p.PostgreSQL)
	require.NoError(p, err)
	p.store, p.ours = s, s
}

func inSQLite(t *testing.T) *patient {
	t.Helper()
	p := newPatient(t)
	p.dsn = filepath.Join(t.TempDir(), "outbox.db")
	db, err := sqlite.OpenDB(p.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	p.DB, p.SQLite = db, &sqlite.Config{}
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	p.store, p.ours = s, s
	return p
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(p *patient)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(onPostgres(t, true)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(inSQLite(t)) })
}

func (p *patient) exec(statement string, args ...any) {
	p.Helper()
	_, err := p.DB.ExecContext(p.Context(), statement, args...)
	require.NoError(p, err, statement)
}

// ago is a time as both databases read it.
func ago(d time.Duration) string {
	return time.Now().Add(-d).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func (p *patient) publish(typ string, occurred time.Duration) {
	p.Helper()
	p.exec(`INSERT INTO outbox (type, key, payload, occurred_on) VALUES ($1, 'k', '{}', $2)`, typ, ago(occurred))
}

func (p *patient) park(sink, state, key string, due any) {
	p.Helper()
	p.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		VALUES ($1, (SELECT coalesce(max("offset"), 0) + 1 FROM outbox_parked), 0, 'i', 'order.placed', 1, $2, $3, '{}', '{}', $4, 1, $5)`, sink, key, ago(time.Hour), state, due)
}

// forward runs a forwarder until everything is settled; it goes on if the test does not end it.
func (p *patient) forward() (end func()) {
	p.Helper()
	c := *p.Forwarder
	c.Store = p.store
	f, err := forwarder.New(c)
	require.NoError(p, err)
	ctx, stop := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		require.NoError(p, <-ended)
	})
	p.Cleanup(end)
	require.Eventually(p, func() bool {
		m, err := p.ours.Membership(p.Context())
		require.NoError(p, err)
		holders, err := p.ours.Holders(p.Context(), nil)
		require.NoError(p, err)
		owned := len(m.Lanes) > 0 && len(holders) == 0
		for _, l := range m.Lanes {
			owned = owned && l.Owner != ""
		}
		return owned
	}, patience, 10*time.Millisecond)
	return end
}

// examine makes one check.
func (p *patient) examine(id string) Finding {
	p.Helper()
	o := p.Options
	o.Only = []string{id}
	found := run(p.Context(), p.Subject, o, p.limits)
	require.Len(p, found, 1, id)
	return found[0]
}

// has asserts what one check comes to.
func (p *patient) has(id string, want Status, text string) Finding {
	p.Helper()
	f := p.examine(id)
	require.Equal(p, want, f.Status, "%+v", f)
	require.Regexp(p, text, f.Text)
	require.NotEmpty(p, f.Why)
	if want == Warn || want == Fail {
		require.NotEmpty(p, f.Fix)
	}
	return f
}

func TestAHealthyOutboxIsOK(t *testing.T) {
	t.Parallel()
	onEach(t, func(p *patient) {
		p.publish("order.placed", 0)
		p.forward()
		for _, f := range run(p.Context(), p.Subject, p.Options, p.limits) {
			require.Equal(p, OK, f.Status, "%+v", f)
			require.Empty(p, f.Fix)
		}
		require.Empty(p, Run(p.Context(), p.Subject, Options{Only: []string{"lanes"}, Skip: []string{"lanes"}}))
	})
}

func TestAFreshOutboxIsOK(t *testing.T) {
	t.Parallel()
	onEach(t, func(p *patient) {
		for _, f := range run(p.Context(), p.Subject, p.Options, p.limits) {
			require.Equal(p, OK, f.Status, "%+v", f)
		}
	})
}

func TestOptionsNameChecksThatThereAre(t *testing.T) {
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
	p := newPatient(t)
	p.reopen("postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	for _, f := range run(t.Context(), p.Subject, p.Options, p.limits) {
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
	p := newPatient(t)
	p.reopen("postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	p.Mistakes = errors.New("waybill.yaml:3: routes: there is none")
	p.has("configuration", Fail, "routes: there is none")
}

func TestAnOutboxThatIsNotMigratedIsOneFailure(t *testing.T) {
	t.Parallel()
	p := onPostgres(t, false)
	p.has("schema", Fail, "not migrated")
	for _, id := range []string{"log", "history", "indexes", "lanes", "dead", "privileges", "disk", "listen"} {
		p.has(id, Skip, "see schema")
	}
}

func TestAnswersThatDoNotComeInTimeAreWarnings(t *testing.T) {
	t.Parallel()
	p := onPostgres(t, true)
	tx, err := p.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), `LOCK TABLE outbox_parked IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	p.Timeout = time.Second
	p.has("dead", Warn, "no answer within 1s")
	p.has("schedules", OK, "")
}

func inTx(p *patient, statements ...string) (tx *sql.Tx) {
	p.Helper()
	tx, err := p.DB.BeginTx(p.Context(), nil)
	require.NoError(p, err)
	p.Cleanup(func() { _ = tx.Rollback() })
	for _, s := range statements {
		_, err := tx.ExecContext(p.Context(), s)
		require.NoError(p, err, s)
	}
	return tx
}
