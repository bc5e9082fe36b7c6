package database_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// sink records the ids of its deliveries, by database.
type sink struct {
	mu    sync.Mutex
	given map[string][]string
}

func (s *sink) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given == nil {
		s.given = make(map[string][]string)
	}
	name := d.Metadata[notification.MetadataDatabase]
	s.given[name] = append(s.given[name], d.ID)
	return "", nil
}

func (s *sink) of(database string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.given[database])
}

// tenants has outboxes on one server: schemas of a database, and databases.
type tenants struct {
	t      *testing.T
	server *postgrestest.Server
	admin  *sql.DB
	all    fleet.Static
}

func newTenants(t *testing.T, schemas, databases int) *tenants {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "64MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	f := &tenants{t: t, server: server, admin: open(t, server.DSN())}
	for i := range schemas {
		name := fmt.Sprint("schema", i)
		_, err := postgres.Migrate(t.Context(), f.admin, postgres.Config{Schema: name})
		require.NoError(t, err)
		f.add(name, f.address("", name))
	}
	if databases > 0 {
		f.exec(`CREATE DATABASE template_tenant`)
		template, err := postgres.OpenDB(f.address("template_tenant", ""))
		require.NoError(t, err)
		_, err = postgres.Migrate(t.Context(), template, postgres.Config{})
		require.NoError(t, err)
		require.NoError(t, template.Close())
	}
	for i := range databases {
		name := fmt.Sprint("database", i)
		f.exec(`CREATE DATABASE ` + name + ` TEMPLATE template_tenant`)
		f.add(name, f.address(name, ""))
	}
	return f
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func (f *tenants) exec(query string) {
	f.t.Helper()
	_, err := f.admin.ExecContext(f.t.Context(), query)
	require.NoError(f.t, err)
}

func (f *tenants) add(name, address string) {
	f.all = append(f.all, config.FleetDatabase(name, address))
}

func (f *tenants) address(database, schema string) string {
	u, err := url.Parse(f.server.DSN())
	require.NoError(f.t, err)
	if database != "" {
		u.Path = "/" + database
	}
	if schema != "" {
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// publish writes rows with one key to an outbox, each in a transaction.
func (f *tenants) publish(d fleet.Database, ids ...string) {
	f.t.Helper()
	db, err := postgres.OpenDB(d.Address)
	require.NoError(f.t, err)
	defer db.Close()
	for _, id := range ids {
		_, err := db.ExecContext(f.t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ($1, 't', 'k', '{}')`, id)
		require.NoError(f.t, err)
	}
}

// forward runs a fleet over the tenants with a number of connections.
func (f *tenants) forward(s *sink, connections int, adjust ...func(*fleet.Config)) (all *fleet.Fleet, stop func()) {
	f.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	fwd, err := forwarder.New(forwarder.Config{Fleet: true, Routes: route.Routes{"*": route.To("sink")},
		Sinks: map[string]forwarder.Sink{"sink": {Sink: s}}, Lease: 3 * time.Second, Connections: 4, Logger: logger})
	require.NoError(f.t, err)
	pools := database.NewPools(connections - connections/4)
	c := fleet.Config{Forwarder: fwd, Databases: f.all, Lease: 3 * time.Second, Sleep: 2 * time.Second, Listeners: connections / 4, Awake: (connections - connections/4) / 2, Logger: logger,
		Open: func(ctx context.Context, d fleet.Database) (fleet.Outbox, error) {
			address, err := config.ParseDatabase(d.Address)
			if err != nil {
				return fleet.Outbox{}, err
			}
			o, release, err := pools.Store(ctx, config.Tables{Database: address, Listen: true, Logger: logger})
			return fleet.Outbox{Store: o, Close: release}, err
		}}
	for _, a := range adjust {
		a(&c)
	}
	all, err = fleet.New(c)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan error, 1)
	go func() { done <- all.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(f.t, <-done)
	})
	f.t.Cleanup(stop)
	return all, stop
}

func await(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 20*time.Millisecond, what)
}

func inState(all *fleet.Fleet, s fleet.State) (n int) {
	for _, d := range all.Databases() {
		if d.State == s {
			n++
		}
	}
	return n
}

// commits returns the server's number of transactions. Each statement is one.
func (f *tenants) commits() (n int) {
	f.t.Helper()
	_, err := f.admin.ExecContext(f.t.Context(), `SELECT pg_stat_clear_snapshot()`)
	require.NoError(f.t, err)
	require.NoError(f.t, f.admin.QueryRowContext(f.t.Context(), `SELECT sum(xact_commit) FROM pg_stat_database`).Scan(&n))
	return n
}

// connections returns the number of client connections. One that was closed counts until its process has ended, for
// which it waits if there are more than the limit.
func (f *tenants) connections(limit int) (n int) {
	f.t.Helper()
	for range 1500 {
		if n = f.clients(); n <= limit {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return n
}

func (f *tenants) clients() (n int) {
	f.t.Helper()
	require.NoError(f.t, f.admin.QueryRowContext(f.t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n))
	return n
}

func TestManyDatabasesShareFewConnections(t *testing.T) {
	t.Parallel()
	outboxes := 48
	if testing.Short() {
		outboxes = 16
	}
	if text := os.Getenv("WAYBILL_FLEET"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		outboxes = n
	}
	databases, connections := outboxes/4, 7+outboxes/8
	schemas := outboxes - databases
	f, s := newTenants(t, schemas, databases), &sink{}
	all, stop := f.forward(s, connections)
	most, limit := 0, connections+1 // and the connection that publishes
	ids := []string{"1", "2", "3"}
	for _, d := range f.all {
		f.publish(d, ids...)
		most = max(most, f.connections(limit))
	}
	for _, d := range f.all {
		await(t, func() bool { return len(s.of(d.Name)) == len(ids) }, d.Name+" should be delivered")
		most = max(most, f.connections(limit))
	}
	await(t, func() bool { return inState(all, fleet.StateAsleep) == len(f.all) }, "all should sleep")

	// PostgreSQL counts transactions up to ten seconds late, so the first period may have more.
	const measured = 10 * time.Second
	rate := math.Inf(1)
	for period := 0; period < 6 && rate >= float64(len(f.all)); period++ {
		before, began := f.commits(), time.Now()
		for time.Since(began) < measured {
			most = max(most, f.connections(limit))
			before++ // reading the count was one
			time.Sleep(measured / 50)
		}
		rate = float64(f.commits()-before) / time.Since(began).Seconds()
		t.Logf("%d schemas and %d databases asleep: %.1f statements/s, at most %d connections, %d now", schemas, databases, rate, most, f.clients())
	}
	require.LessOrEqual(t, most, limit)
	require.Less(t, rate, float64(len(f.all)), "at most one per second and database")

	woken := time.Now()
	f.publish(f.all[0], "4")
	f.publish(f.all[len(f.all)-1], "4")
	for _, d := range []fleet.Database{f.all[0], f.all[len(f.all)-1]} {
		await(t, func() bool { return len(s.of(d.Name)) == 4 }, d.Name+" should wake")
		t.Logf("%s woke and delivered within %s", d.Name, time.Since(woken).Round(time.Millisecond))
	}

	lost := f.all[len(f.all)-1].Name
	f.exec(`ALTER DATABASE ` + lost + ` ALLOW_CONNECTIONS false`)
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + lost + `'`)
	others := f.all[:len(f.all)-1]
	for _, d := range others {
		f.publish(d, "5")
	}
	for _, d := range others {
		await(t, func() bool { return slices.Contains(s.of(d.Name), "5") }, d.Name+" should not wait for the lost one")
	}
	f.exec(`ALTER DATABASE ` + lost + ` ALLOW_CONNECTIONS true`)
	f.publish(f.all[len(f.all)-1], "5")
	await(t, func() bool { return slices.Contains(s.of(lost), "5") }, "the database should come back")
	stop()
	for i, d := range f.all {
		want := []string{"1", "2", "3", "5"}
		if i == 0 || i == len(f.all)-1 {
			want = []string{"1", "2", "3", "4", "5"}
		}
		require.Equal(t, want, s.of(d.Name), d.Name)
	}
}

func TestASleepingOutboxWaitsForATransactionThatIsStillOpen(t *testing.T) {
	t.Parallel()
	f, s := newTenants(t, 1, 0), &sink{}
	tx, err := f.admin.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO schema0.outbox (id, type, key, payload) VALUES ('late', 't', 'k', '{}')`)
	require.NoError(t, err)
	all, _ := f.forward(s, 12)
	f.publish(f.all[0], "early")
	await(t, func() bool { return len(s.of("schema0")) == 1 }, "the forwarder should deliver from it")
	require.Never(t, func() bool { return inState(all, fleet.StateAsleep) > 0 }, 6*time.Second, 20*time.Millisecond,
		"the row may come at an offset that was passed")
	require.NoError(t, tx.Commit())
	await(t, func() bool { return len(s.of("schema0")) == 2 }, "the late row should arrive")
	await(t, func() bool { return inState(all, fleet.StateAsleep) == 1 }, "it should sleep")
}

func TestAFleetOutlivesACrashOfItsServer(t *testing.T) {
	t.Parallel()
	f, s := newTenants(t, 2, 1), &sink{}
	all, _ := f.forward(s, 12)
	for _, d := range f.all {
		f.publish(d, "1")
	}
	for _, d := range f.all {
		await(t, func() bool { return len(s.of(d.Name)) == 1 }, "the forwarder should deliver from "+d.Name)
	}
	await(t, func() bool { return inState(all, fleet.StateAsleep) == 3 }, "they should sleep")
	require.NoError(t, f.server.Down(postgrestest.Immediate))
	await(t, func() bool {
		return slices.ContainsFunc(all.Databases(), func(d fleet.Status) bool { return d.Error != "" })
	}, "the fleet should notice the crash")
	require.NoError(t, f.server.Up())
	for _, d := range f.all {
		f.publish(d, "2")
	}
	for _, d := range f.all {
		await(t, func() bool { return slices.Equal(s.of(d.Name), []string{"1", "2"}) }, d.Name+" does not come back")
	}
}

func TestTheDatabasesOfAForwarderThatIsCutOffAreTakenOver(t *testing.T) {
	t.Parallel()
	f, dead, alive := newTenants(t, 4, 0), &sink{}, &sink{}
	_, err := postgres.Migrate(t.Context(), f.admin, postgres.Config{Prefix: "fleet"})
	require.NoError(t, err)
	proxy := postgrestest.StartProxy(t, f.server.DSN())
	controlled := func(dsn string) func(*fleet.Config) {
		control, err := postgres.Open(t.Context(), open(t, dsn), postgres.Config{Prefix: "fleet"})
		require.NoError(t, err)
		return func(c *fleet.Config) {
			c.Control = func(context.Context) (fleet.ControlStore, error) { return control, nil }
			c.Sleep = fleet.Never
		}
	}
	direct := f.all
	f.all = nil
	for _, d := range direct {
		u, err := url.Parse(d.Address)
		require.NoError(t, err)
		u.Host = proxy.Address()
		f.all = append(f.all, fleet.Database{Name: d.Name, Address: u.String(), Identity: d.Identity})
	}
	first, _ := f.forward(dead, 16, controlled(proxy.DSN()))
	await(t, func() bool { return inState(first, fleet.StateAwake) == 4 }, "one forwarder should work on all")
	f.all = direct
	second, _ := f.forward(alive, 16, controlled(f.server.DSN()))
	await(t, func() bool {
		return inState(first, fleet.StateAwake) == 2 && inState(second, fleet.StateAwake) == 2
	}, "they should share")
	proxy.Swallow()
	await(t, func() bool { return inState(second, fleet.StateAwake) == 4 }, "the other forwarder should take over the databases")
	for _, d := range direct {
		f.publish(d, "1", "2")
	}
	for _, d := range direct {
		await(t, func() bool { return slices.Equal(alive.of(d.Name), []string{"1", "2"}) }, d.Name+" should be taken over")
	}
	proxy.Forward()
	proxy.Sever()
}

func TestASchemaThatIsDroppedCostsItsNeighboursNothing(t *testing.T) {
	t.Parallel()
	f, s := newTenants(t, 3, 0), &sink{}
	all, _ := f.forward(s, 12)
	await(t, func() bool { return inState(all, fleet.StateAsleep) == 3 }, "they should sleep")
	f.exec(`DROP SCHEMA schema1 CASCADE`)
	await(t, func() bool { return inState(all, fleet.StateFailing) == 1 }, "it should fail together with its neighbours")
	await(t, func() bool { return inState(all, fleet.StateAsleep) == 2 }, "its neighbours should sleep again")

	// The log shows nothing of operators' actions.
	f.exec(`UPDATE schema0.outbox_cursors SET revision = revision + 1`)
	await(t, func() bool { return inState(all, fleet.StateAwake) == 1 }, "an operator's action in a neighbour should wake it")

	_, err := postgres.Migrate(t.Context(), f.admin, postgres.Config{Schema: "schema1"})
	require.NoError(t, err)
	f.publish(f.all[1], "1")
	await(t, func() bool { return slices.Equal(s.of("schema1"), []string{"1"}) }, "the database should come back")
}
