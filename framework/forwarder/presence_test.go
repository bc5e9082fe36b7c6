package forwarder_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// pair is two forwarders with leases longer than any test, whose sessions show each other that they are alive.
// The first one reaches the database through a proxy.
type pair struct {
	*outbox
	proxy         *postgrestest.Proxy
	first, second *member
}

// member is a forwarder that shares nothing with the other one but the database.
type member struct {
	*engine
	*script
	leases
	lines
}

func newPair(t *testing.T, dsn string, answer answer) *pair {
	t.Helper()
	p := &pair{outbox: openPostgres(t, dsn), proxy: postgrestest.StartProxy(t, dsn)}
	p.first = p.join(p.proxy.DSN(), answer)
	p.append("t", "", numbered("warm", 20)...)
	eventually(t, func() bool { return len(p.first.times()) == 20 }, "the first one has the lanes")
	p.second = p.join(dsn, nil)
	p.awaitPresences(2)
	eventually(t, func() bool { return p.second.won.Load() > 0 }, "the second one has its part")
	return p
}

// join starts a forwarder.
func (p *pair) join(dsn string, answer answer) *member {
	p.t.Helper()
	m := &member{script: &script{answer: answer}}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Log(strings.Join(m.with(""), "\n"))
		}
	})
	s, err := postgres.Open(p.t.Context(), openPlain(p.t, dsn), postgres.Config{Listen: dsn})
	require.NoError(p.t, err)
	m.engine = p.start(map[string]forwarder.Sink{"sink": {Sink: m.script}}, route.Routes{"*": route.To("sink")},
		over(s), leased(2*patience), watchedBy(&m.leases), m.logging, inRealTime, stopsWithin(time.Second), func(c *forwarder.Config) { c.Lanes = 4 })
	return m
}

// awaitPresences waits until so many rows name a session.
func (p *pair) awaitPresences(n int) {
	p.t.Helper()
	eventually(p.t, func() bool { return p.presences() == n }, fmt.Sprintf("%d forwarders have declared their presence", n))
}

func (p *pair) presences() (n int) {
	if p.db.QueryRow(`SELECT count(*) FROM outbox_forwarders WHERE presence <> '' AND presence NOT LIKE '-%' AND presence NOT LIKE '?%'`).Scan(&n) != nil {
		return -1
	}
	return n
}

// delivers commits notifications of all lanes, and waits until some forwarder has delivered each of them.
func (p *pair) delivers(prefix string) (ids []string) {
	p.t.Helper()
	ids = numbered(prefix, 40)
	for i, id := range ids {
		p.append("t", fmt.Sprint(i%20), id)
	}
	p.awaitAll(ids)
	return ids
}

func (p *pair) awaitAll(ids []string) {
	p.t.Helper()
	eventually(p.t, func() bool {
		first, second := p.first.times(), p.second.times()
		return !slices.ContainsFunc(ids, func(id string) bool { return first[id]+second[id] == 0 })
	}, "all are delivered long before a lease ends")
}

// running returns how many deliveries are in flight.
func (m *member) running() int {
	m.script.mu.Lock()
	defer m.script.mu.Unlock()
	return m.inFlight
}

func TestNothingIsTakenFromAForwarderWhoseSessionIsTerminated(t *testing.T) {
	t.Parallel()
	p := newPair(t, outboxtest.DSN(t), nil)
	for i := range 4 {
		p.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		for _, id := range p.delivers(fmt.Sprintf("round%d-", i)) {
			require.Equal(t, 1, p.first.times()[id]+p.second.times()[id], id)
		}
		p.awaitPresences(2)
	}
	require.Zero(t, p.first.lost.Load()+p.second.lost.Load())
}

func TestAForwarderThatIsCutOffDeliversNothingMoreAndItsLanesAreTaken(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	p := newPair(t, outboxtest.DSN(t), func(ctx context.Context, d *notification.Delivery) error {
		if d.Type == "slow" {
			select {
			case <-stuck:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var slow []string
	for i := range 40 { // more than its threshold: what waits behind them must not begin later
		slow = append(slow, fmt.Sprintf("slow%02d", i))
		p.append("slow", slow[i], slow[i])
	}
	eventually(t, func() bool { return p.first.running() > 0 }, "deliveries of the first one are in flight")

	for { // a machine that stalls may have made it withdraw its presence
		p.awaitPresences(2)
		require.NoError(t, p.proxy.Close())
		if p.presences() == 2 {
			break
		}
		require.NoError(t, p.proxy.Open())
	}
	eventually(t, func() bool { return p.second.won.Load() >= 4 }, "the second one has all lanes")
	before := len(p.first.given())
	close(stuck)
	p.delivers("after")
	require.Zero(t, len(p.first.given()), "nothing begins at the first one; before: %d", before)
	p.awaitAll(slow)

	require.NoError(t, p.proxy.Open())
	p.awaitPresences(2)
	require.NotEmpty(t, p.first.with("took this process for dead"))
	for _, id := range p.delivers("again") {
		require.Equal(t, 1, p.first.times()[id]+p.second.times()[id], id)
	}
}

func TestForwardersOutliveARestartOfTheirServerWithTheirLanes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts a separate server")
	}
	server := startPrivate(t)
	p := newPair(t, outboxtest.Migrated(t, server.DSN()), nil)
	for i := range 3 {
		require.NoError(t, server.Restart(postgrestest.Immediate))
		eventually(t, func() bool { return p.db.Ping() == nil }, "the server is back")
		for _, id := range p.delivers(fmt.Sprintf("round%d-", i)) {
			require.Equal(t, 1, p.first.times()[id]+p.second.times()[id], id)
		}
		p.awaitPresences(2)
	}
	for _, m := range []*member{p.first, p.second} {
		require.Empty(t, m.with("gone"))
		require.Empty(t, m.with("took this process for dead"))
	}
}

func TestAForwarderWithoutARightToItsPresenceDelivers(t *testing.T) {
	t.Parallel()
	dsn := outboxtest.DSN(t)
	o := openPostgres(t, dsn)
	role := value[string](o, `SELECT 'role_' || replace(gen_random_uuid()::text, '-', '')`)
	o.exec(`CREATE ROLE ` + role + ` LOGIN`)
	t.Cleanup(func() {
		_, err := o.db.ExecContext(context.WithoutCancel(t.Context()), `DROP ROLE `+role)
		require.NoError(t, err)
	})
	var log lines
	var s script
	listen, err := url.Parse(dsn)
	require.NoError(t, err)
	listen.User = url.User(role)
	opened, err := postgres.Open(t.Context(), o.db, postgres.Config{Listen: listen.String()})
	require.NoError(t, err)
	f := o.start(map[string]forwarder.Sink{"sink": {Sink: &s}}, route.Routes{"*": route.To("sink")}, over(opened), log.logging, inRealTime)
	o.append("t", "", "a")
	eventually(t, func() bool { return len(s.times()) == 1 }, "it is delivered")
	eventually(t, func() bool { return len(log.with("showing that this process is alive failed")) == 1 }, "and the reason is logged")
	f.end()
}
