package program

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// longBefore is the lease of forwarders whose lanes must be free long before it is over: longer than a test
// waits for a delivery.
const longBefore = "10m"

// present starts a forwarder, and waits until its row names the session that shows that it is alive.
func (o outbox) present(t testing.TB, config string, forwarders int) *running {
	t.Helper()
	p := start(t, "forward", "-c", config)
	o.awaitPresent(t, forwarders)
	return p
}

// awaitPresent waits until the rows of forwarders name their sessions. A row does not for a while after its
// session was late, as on a machine that stalls: a forwarder that is killed then keeps its lease.
func (o outbox) awaitPresent(t testing.TB, forwarders int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int // without sessions that are only requested or withdrawn
		err := o.db.QueryRow(`SELECT count(*) FROM outbox_forwarders WHERE presence <> '' AND substr(presence, 1, 1) NOT IN ('?', '-')`).Scan(&n)
		return err == nil && n == forwarders
	}, patience, 20*time.Millisecond, "its row names its session")
}

// onServers runs a test on each database that notices when a process dies.
func onServers(t *testing.T, test func(t *testing.T, o outbox)) {
	t.Helper()
	t.Parallel()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, databases["postgres"](t)) })
	t.Run("mysql", func(t *testing.T) { t.Parallel(); test(t, onMySQL(t)) })
}

func onMySQL(t testing.TB) outbox {
	t.Helper()
	address := mysqltest.URL(t)
	db, err := mysql.OpenDB(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return outbox{address, db}
}

// inLanes is config for sinks of four lanes.
func (o outbox) inLanes(t testing.TB, lease, url string) (path string) {
	t.Helper()
	path = o.config(t, lease, url)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, "outbox: {lanes: 4}\n"...), 0o600))
	return path
}

func (p *running) kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait()
}

func TestTheLanesOfAKilledForwarderAreTakenLongBeforeItsLeaseIsOver(t *testing.T) {
	onServers(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		config := o.inLanes(t, longBefore, destination.URL)
		first := o.present(t, config, 1)
		o.publish(t, 1, 20)
		destination.await(t, 20)
		o.present(t, config, 2)
		first.kill(t)
		o.publish(t, 21, 40)
		destination.await(t, 40)
	})
}

func TestAForwarderThatIsKilledAndStartedAgainGoesOnLongBeforeItsLeaseIsOver(t *testing.T) {
	onServers(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		config := o.config(t, longBefore, destination.URL)
		for i := range 3 {
			p := o.present(t, config, 1)
			o.publish(t, 20*i+1, 20*i+20)
			destination.await(t, 20*i+20)
			o.awaitPresent(t, 1)
			p.kill(t)
		}
		start(t, "forward", "-c", config)
		o.publish(t, 61, 80)
		destination.await(t, 80)
	})
}

// A stopped process keeps its connections, and could begin a delivery whenever it goes on.
func TestAForwarderThatIsStoppedKeepsItsLanesUntilItsLeaseIsOver(t *testing.T) {
	onServers(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		config := o.inLanes(t, "12s", destination.URL)
		first := o.present(t, config, 1)
		o.publish(t, 1, 20)
		destination.await(t, 20)
		second := o.present(t, config, 2)
		first.signal(t, syscall.SIGSTOP)
		stopped := time.Now()
		o.publish(t, 21, 70)                      // each key
		for time.Since(stopped) < 4*time.Second { // its last renewal is 4 s old at most
			var members int
			require.NoError(t, o.db.QueryRow(`SELECT count(*) FROM outbox_forwarders`).Scan(&members))
			require.Equal(t, 2, members)
			time.Sleep(100 * time.Millisecond)
		}
		destination.await(t, 70)
		first.signal(t, syscall.SIGCONT)
		o.publish(t, 71, 120)
		destination.await(t, 120)
		for _, p := range []*running{first, second} {
			p.signal(t, syscall.SIGTERM)
			require.Zero(t, p.wait())
		}
	})
}

// BenchmarkAKilledForwarder measures how long nothing is delivered after a SIGKILL, with the default lease, or
// that of WAYBILL_LEASE. WAYBILL_ON=mysql is MySQL instead of PostgreSQL.
func BenchmarkAKilledForwarder(b *testing.B) {
	for name, others := range map[string]bool{"another takes over": true, "it is started again": false} {
		b.Run(name, func(b *testing.B) {
			pauses := make([]float64, 0, b.N)
			for b.Loop() {
				pauses = append(pauses, pauseAfterKill(b, others).Seconds())
			}
			slices.Sort(pauses)
			for what, at := range map[string]int{"s-min": 0, "s-median": len(pauses) / 2, "s-max": len(pauses) - 1} {
				b.ReportMetric(pauses[at], what)
			}
		})
	}
}

// pauseAfterKill returns how long after the kill the last of some notifications arrives that were published
// behind it, for all lanes.
func pauseAfterKill(b *testing.B, others bool) time.Duration {
	o := databases["postgres"](b)
	if os.Getenv("WAYBILL_ON") == "mysql" {
		o = onMySQL(b)
	}
	o.migrate(b)
	destination := newReceiver(b)
	lease := "15s"
	if given := os.Getenv("WAYBILL_LEASE"); given != "" {
		lease = given
	}
	config := o.inLanes(b, lease, destination.URL)
	victim := start(b, "forward", "-c", config)
	o.publish(b, 1, 20)
	destination.await(b, 20)
	if others {
		start(b, "forward", "-c", config)
	}
	time.Sleep(3 * time.Second) // every row of the membership is as usual
	o.publish(b, 21, 40)
	destination.await(b, 40)
	killed := time.Now()
	victim.kill(b)
	if !others {
		start(b, "forward", "-c", config)
	}
	o.publish(b, 41, 60)
	destination.await(b, 60)
	return time.Since(killed)
}
