package history_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

// Counts from before the first sample, and counts of a restarted forwarder, are not added twice.
func TestAnHourAddsUpWhatForwardersCount(t *testing.T) {
	t.Parallel()
	h, heartbeat, _ := begin(t)
	sum := func() (done, failed, dead int64) {
		h.Refresh(t.Context())
		for _, p := range h.Hour("mail") {
			done, failed, dead = done+p.Delivered, failed+p.Failed, dead+p.Dead
		}
		return done, failed, dead
	}
	heartbeat("a", 1000, 0, 0)
	done, _, _ := sum()
	require.Zero(t, done, "counts from before the first sample do not belong to the hour")
	heartbeat("a", 1030, 4, 1)
	heartbeat("b", 500, 0, 0)
	done, failed, dead := sum()
	require.EqualValues(t, []int64{30, 4, 1}, []int64{done, failed, dead})
	heartbeat("a", 7, 0, 0) // after a restart
	heartbeat("b", 505, 0, 0)
	done, failed, dead = sum()
	require.EqualValues(t, []int64{42, 4, 1}, []int64{done, failed, dead})
	require.Zero(t, h.Hour("other"))
}

// The forwarder a has ended, b has left and is back.
func TestAnHourBeginsWithWhatHeartbeatsSayAboutIt(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, filepath.Join(t.TempDir(), "outbox.db"))
	current := new(target.Current)
	t.Cleanup(current.Show(target.Target{Store: s}))
	h := history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	hour := func(spans ...store.Done) store.Running {
		return store.Running{Sinks: []store.SinkRunning{{Sink: "mail", Hour: spans}}}
	}
	for owner, spans := range map[string][]store.Done{"a": {{0, 3}, {100, 0}}, "b": {{7, 0}}} {
		require.NoError(t, s.Heartbeat(t.Context(), store.Member{Owner: owner, Running: hour(spans...)}, time.Hour))
		require.NoError(t, s.Leave(t.Context(), owner))
	}
	require.NoError(t, s.Heartbeat(t.Context(), store.Member{Owner: "b", Running: hour(store.Done{9, 0})}, time.Hour))
	h.Refresh(t.Context())
	h.Refresh(t.Context())
	var done, failed, most int64
	for _, p := range h.Hour("mail") {
		done, failed, most = done+p.Delivered, failed+p.Failed, max(most, p.Delivered)
	}
	require.Equal(t, []int64{109, 3}, []int64{done, failed})
	require.LessOrEqual(t, most, int64(19), "five minutes are spread over their points")
}

func TestWhileTheDatabaseIsAwayTheLastFiguresStay(t *testing.T) {
	t.Parallel()
	h, heartbeat, end := begin(t)
	heartbeat("a", 1, 0, 0)
	h.Refresh(t.Context())
	before := h.Snapshot(t.Context())
	require.NoError(t, before.Err)
	require.Equal(t, 1, before.Sample.Forwarders)
	end()
	h.Refresh(t.Context())
	after := h.Snapshot(t.Context())
	require.Error(t, after.Err)
	require.Equal(t, before.At, after.At)
	require.Equal(t, 1, after.Sample.Forwarders)
}

func TestWithoutATargetTheSnapshotIsZero(t *testing.T) {
	t.Parallel()
	h := history.New(new(target.Current), slog.New(slog.DiscardHandler))
	defer h.Close()
	h.Begin()
	require.Zero(t, h.Snapshot(t.Context()).At)
}

// begin returns a history of an outbox, a function that writes the heartbeat of a forwarder of the
// sink mail, and one that closes the database.
func begin(t *testing.T) (h *history.History, heartbeat func(owner string, delivered, failed, dead int), end func()) {
	t.Helper()
	s, db := openStore(t, filepath.Join(t.TempDir(), "outbox.db"))
	current := new(target.Current)
	t.Cleanup(current.Show(target.Target{Store: s}))
	h = history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	heartbeat = func(owner string, delivered, failed, dead int) {
		t.Helper()
		running := fmt.Sprintf(`{"sinks": [{"sink": "mail", "delivered": %d, "failed": %d, "dead": %d}]}`, delivered, failed, dead)
		_, err := db.ExecContext(t.Context(), `INSERT OR REPLACE INTO outbox_forwarders (owner, sinks, running, live_until)
			VALUES (?, '[]', ?, 9000000000000000)`, owner, running)
		require.NoError(t, err)
	}
	return h, heartbeat, func() { require.NoError(t, db.Close()) }
}

// The first sample can come before the first heartbeat.
func TestWhatThisProcessDeliversBeforeItsFirstHeartbeatIsCounted(t *testing.T) {
	t.Parallel()
	s, db := openStore(t, filepath.Join(t.TempDir(), "outbox.db"))
	f := newForwarder(t, s)
	current := new(target.Current)
	t.Cleanup(current.Show(target.Target{Store: s, Forwarder: f}))
	h := history.New(current, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	h.Refresh(t.Context())
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	require.Eventually(t, func() bool {
		m, err := s.Membership(ctx)
		return err == nil && len(m.Sinks()) > 0 && m.Sinks()[0].Delivered == 1
	}, time.Minute, 20*time.Millisecond)
	h.Refresh(t.Context())
	var delivered int64
	for _, p := range h.Hour("mail") {
		delivered += p.Delivered
	}
	require.EqualValues(t, 1, delivered)
}

func TestADatabaseOfAFleetIsShownWithItsOwnDeliveries(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	sink := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil })
	f, err := forwarder.New(forwarder.Config{Fleet: true, Sinks: map[string]forwarder.Sink{"mail": {Sink: sink}}, Routes: route.Routes{"*": route.To("mail")}})
	require.NoError(t, err)
	ended := make(chan error, 3)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		stop()
		for range cap(ended) {
			require.NoError(t, <-ended)
		}
	}()
	histories := make(map[string]*history.History)
	for _, name := range []string{"eu", "us"} {
		s, db := openStore(t, filepath.Join(t.TempDir(), name+".db"))
		current := new(target.Current)
		t.Cleanup(current.Show(target.Target{Store: s, Forwarder: f, Database: name}))
		histories[name] = history.New(current, slog.New(slog.DiscardHandler))
		t.Cleanup(histories[name].Close)
		histories[name].Refresh(t.Context())
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
		require.NoError(t, err)
		go func() { ended <- f.RunDatabase(ctx, forwarder.Database{Name: name, Store: s}) }()
	}
	require.Eventually(t, func() bool { return f.Stats()[0].Delivered == 2 }, time.Minute, 5*time.Millisecond)
	for name, h := range histories {
		h.Refresh(t.Context())
		var delivered int64
		for _, p := range h.Hour("mail") {
			delivered += p.Delivered
		}
		require.EqualValues(t, 1, delivered, name)
	}
}

// openStore opens an outbox in a file.
func openStore(t *testing.T, path string) (*sqlite.Store, *sql.DB) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	return s, db
}

// newForwarder returns a forwarder that delivers everything to the sink mail. It is not running.
func newForwarder(t *testing.T, s *sqlite.Store) *forwarder.Forwarder {
	t.Helper()
	sink := sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil })
	f, err := forwarder.New(forwarder.Config{Store: s, Sinks: map[string]forwarder.Sink{"mail": {Sink: sink}}, Routes: route.Routes{"*": route.To("mail")}})
	require.NoError(t, err)
	return f
}
