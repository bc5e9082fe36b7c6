package observe_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/observe"
	publishing "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const patience = 2 * time.Minute

// outbox is a database with an outbox.
type outbox struct {
	db    *sql.DB
	store interface {
		forwarder.Store
		store.Sampler
		publishing.Log
	}
}

func onPostgres(t testing.TB, dsn string) *outbox {
	t.Helper()
	db, s := outboxtest.PostgreSQL(t, dsn, postgres.Config{Listen: dsn})
	return &outbox{db, s}
}

func onSQLite(t testing.TB) *outbox {
	t.Helper()
	db, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	return &outbox{db, s}
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, onPostgres(t, outboxtest.DSN(t))) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, onSQLite(t)) })
}

func (o *outbox) publish(t testing.TB, typ string, n int) {
	t.Helper()
	for i := range n {
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ($1, $2, '{}')`, typ, "secret-key-"+strconv.Itoa(i))
		require.NoError(t, err)
	}
}

// byType is a sink that answers with the error of the notification's type.
type byType map[string]error

func (b byType) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return "", b[d.Type]
}

func (o *outbox) config(m *observe.Monitor, to map[string]forwarder.Sink) forwarder.Config {
	names := make([]string, 0, len(to))
	for name := range to {
		names = append(names, name)
	}
	return forwarder.Config{
		Store: o.store, Sinks: to, Routes: route.Routes{"order.*": route.To(names...)},
		Lease: time.Minute, Observer: m, Logger: slog.New(slog.DiscardHandler),
	}
}

// run runs a forwarder, and a monitor, until the end of the test or stop.
func (o *outbox) run(t testing.TB, m *observe.Monitor, c forwarder.Config) (f *forwarder.Forwarder, stop func()) {
	t.Helper()
	f, err := forwarder.New(c)
	require.NoError(t, err)
	release := m.Watch(observe.Target{Forwarder: f, Store: o.store, DB: o.db})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		release()
	})
	t.Cleanup(stop)
	return f, stop
}

// sampling runs a monitor's sampler until the end of the test.
func sampling(t testing.TB, m *observe.Monitor) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// scraped has the metric families of one scrape.
type scraped map[string]*dto.MetricFamily

func scrape(t testing.TB, h http.Handler) scraped {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	require.NoError(t, err)
	return families
}

// series returns the series with these labels (name=value); nil if there is none.
func (s scraped) series(name string, labels ...string) *dto.Metric {
	for _, metric := range s[name].GetMetric() {
		var found []string
		for _, l := range metric.GetLabel() {
			found = append(found, l.GetName()+"="+l.GetValue())
		}
		all := true
		for _, want := range labels {
			all = all && strings.Contains(" "+strings.Join(found, " ")+" ", " "+want+" ")
		}
		if all {
			return metric
		}
	}
	return nil
}

// value returns the value of a counter or gauge, or the count of a histogram; -1 if there is none.
func (s scraped) value(name string, labels ...string) float64 {
	m := s.series(name, labels...)
	switch {
	case m == nil:
		return -1
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

// await scrapes until a value is as wanted.
func await(t testing.TB, m *observe.Monitor, want float64, name string, labels ...string) scraped {
	t.Helper()
	var s scraped
	require.Eventually(t, func() bool {
		s = scrape(t, m)
		return s.value(name, labels...) == want
	}, patience, 10*time.Millisecond, "%s %v", name, labels)
	return s
}

func TestEverySeriesOfASinkExistsBeforeAnythingHappens(t *testing.T) {
	t.Parallel()
	m := observe.New(observe.Config{Version: "v1"})
	m.Expect("events", "mail")
	s := scrape(t, m)
	for _, sink := range []string{"sink=events", "sink=mail"} {
		for _, result := range []string{"delivered", "transient", "throttled", "unavailable", "permanent", "unknown", "cancelled"} {
			require.Zero(t, s.value("waybill_attempts_total", sink, "result="+result), result)
		}
		for _, reason := range []string{"attempts", "refused", "unknown", "route"} {
			require.Zero(t, s.value("waybill_dead_total", sink, "reason="+reason), reason)
		}
		for _, state := range []string{"retrying", "scheduled", "blocked", "dead", "collecting"} {
			require.Zero(t, s.value("waybill_parked_total", sink, "state="+state), state)
		}
		for _, histogram := range []string{"waybill_delivery_duration_seconds", "waybill_delivery_lag_seconds", "waybill_delivery_batch_size"} {
			require.Zero(t, s.value(histogram, sink), histogram)
		}
		require.NotEqual(t, -1.0, s.value("waybill_sink_lag_seconds", sink), "the lag grows from the start, before the first sample")
	}
	for _, op := range event.DatabaseOps() {
		require.Zero(t, s.value("waybill_database_errors_total", "op="+string(op)))
	}
	for _, name := range []string{"waybill_lease_losses_total", "waybill_rebases_total", "waybill_retention_removed_rows_total", "waybill_sample_timestamp_seconds"} {
		require.Zero(t, s.value(name), name)
	}
	require.Equal(t, 1.0, s.value("waybill_build_info", "version=v1"))
	require.Equal(t, 1.0, s.value("waybill_config_reload_success"))
	m.Reloaded(false)
	require.Zero(t, scrape(t, m).value("waybill_config_reload_success"))
}

func TestDeliveriesAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{})
		answers := byType{"order.refused": sinks.Permanent(errors.New("secret text")), "order.late": sinks.Transient(errors.New("secret text"))}
		o.publish(t, "order.placed", 8)
		o.publish(t, "order.refused", 1)
		o.publish(t, "order.late", 1)
		o.publish(t, "stranger", 1)
		o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: answers, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Millisecond}}}))
		await(t, m, 1, "waybill_dead_total", "sink=events", "reason=attempts")
		await(t, m, 1, "waybill_parked_total", "sink=_unrouted", "state=dead")
		await(t, m, 0, "waybill_pending_in_memory", "sink=events")
		s := await(t, m, 8, "waybill_attempts_total", "sink=events", "result=delivered")
		require.Equal(t, 1.0, s.value("waybill_attempts_total", "sink=events", "result=permanent"))
		require.Equal(t, 2.0, s.value("waybill_attempts_total", "sink=events", "result=transient"))
		require.Equal(t, 1.0, s.value("waybill_dead_total", "sink=events", "reason=refused"))
		require.Equal(t, 1.0, s.value("waybill_dead_total", "sink=_unrouted", "reason=refused"))
		require.Equal(t, 1.0, s.value("waybill_parked_total", "sink=events", "state=retrying"))
		require.Equal(t, 2.0, s.value("waybill_parked_total", "sink=events", "state=dead"))
		require.Equal(t, 8.0, s.value("waybill_delivery_lag_seconds", "sink=events"))
		require.Equal(t, 11.0, s.value("waybill_delivery_duration_seconds", "sink=events"))
		require.Zero(t, s.value("waybill_in_flight", "sink=events"))
		require.Equal(t, float64(forwarder.DefaultThreshold), s.value("waybill_threshold", "sink=events"))
		require.Positive(t, s.value("waybill_checkpoints_total", "result=written"))
		require.Equal(t, s.value("waybill_checkpoints_total", "result=written"), s.value("waybill_checkpoint_duration_seconds"))
		require.Positive(t, s.value("waybill_wakeups_total", "by=poll"))
		require.Positive(t, s.value("go_sql_open_connections"))
		require.Positive(t, s.value("go_goroutines"))
	})
}

func TestNoSeriesNamesAKeyAnIdOrAnError(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	m := observe.New(observe.Config{})
	o.publish(t, "order.refused", 3)
	o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{"order.refused": sinks.Permanent(errors.New("secret text"))}}}))
	sampling(t, m)
	s := await(t, m, 3, "waybill_dead_total", "sink=events", "reason=refused")
	allowed := map[string]bool{"sink": true, "result": true, "reason": true, "state": true, "by": true, "op": true, "version": true, "go_version": true}
	for name, family := range s {
		if !strings.HasPrefix(name, "waybill_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				require.True(t, allowed[label.GetName()], "%s{%s}", name, label.GetName())
				require.NotContains(t, label.GetValue(), "secret")
			}
		}
	}
}

func TestASampleShowsTheBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{Interval: 10 * time.Millisecond})
		sampling(t, m)
		o.publish(t, "order.refused", 2)
		_, stop := o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {
			Sink: byType{"order.refused": sinks.Permanent(errors.New("no"))}, OnDead: forwarder.OnDeadHalt}}))
		await(t, m, 2, "waybill_halted_keys", "sink=events")
		await(t, m, 2, "waybill_parked", "sink=events", "state=dead")
		await(t, m, 1, "waybill_lanes", "sink=events", "state=owned")
		s := await(t, m, 1, "waybill_forwarders")
		require.InDelta(t, time.Now().Unix(), s.value("waybill_parked_oldest_timestamp_seconds", "sink=events", "state=dead"), 60)
		require.InDelta(t, time.Now().Unix(), s.value("waybill_log_oldest_timestamp_seconds"), 60)
		require.InDelta(t, time.Now().Unix(), s.value("waybill_sample_timestamp_seconds"), 60)
		require.Positive(t, s.value("waybill_log_size_bytes"))
		await(t, m, 0, "waybill_sink_lag_seconds", "sink=events")
		require.Zero(t, s.value("waybill_sink_paused", "sink=events"))
		require.Equal(t, forwarder.DefaultRetention.Seconds(), s.value("waybill_retention_seconds"))
		stop()
	})
}

func TestLagGrowsWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	o := onPostgres(t, outboxtest.Migrated(t, server.DSN()))
	m := observe.New(observe.Config{Interval: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	sampling(t, m)
	o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}}))
	await(t, m, 0, "waybill_sink_lag_seconds", "sink=events")
	require.NoError(t, server.Down(postgrestest.Immediate))
	lag := func() float64 { return scrape(t, m).value("waybill_sink_lag_seconds", "sink=events") }
	require.Eventually(t, func() bool { return lag() > 0 }, patience, 10*time.Millisecond)
	before := lag()
	require.Eventually(t, func() bool { return lag() > before }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return scrape(t, m).value("waybill_database_errors_total", "op=look") > 0 }, patience, 10*time.Millisecond)
	require.NoError(t, server.Up())
	await(t, m, 0, "waybill_sink_lag_seconds", "sink=events")
}

func TestAReloadResetsNoTotal(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{})
		c := o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}})
		o.publish(t, "order.placed", 5)
		f, stop := o.run(t, m, c)
		await(t, m, 5, "waybill_attempts_total", "sink=events", "result=delivered")
		await(t, m, 0, "waybill_pending_in_memory", "sink=events")

		other := &other{}
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"events": {Sink: other}, "more": {Sink: byType{}}}, c.Routes))
		require.Zero(t, f.Stats()[1].Delivered, "the engine's own counts restart")
		s := scrape(t, m)
		require.Equal(t, 5.0, s.value("waybill_attempts_total", "sink=events", "result=delivered"))
		require.Zero(t, s.value("waybill_attempts_total", "sink=more", "result=delivered"), "a new sink has its series")
		o.publish(t, "order.placed", 1)
		await(t, m, 6, "waybill_attempts_total", "sink=events", "result=delivered")

		stop() // a new forwarder does not reset the totals either
		o.publish(t, "order.placed", 1)
		o.run(t, m, c)
		await(t, m, 7, "waybill_attempts_total", "sink=events", "result=delivered")
	})
}

func TestCollectionsAreCountedAcrossReloadsAndForwarders(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{})
		newest := forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 50 * time.Millisecond}
		c := o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}, Collect: newest}, "plain": {Sink: byType{}}})
		f, stop := o.run(t, m, c)
		s := scrape(t, m)
		require.Zero(t, s.value("waybill_superseded_total", "sink=events"))
		require.Zero(t, s.value("waybill_collections_total", "sink=events"))
		require.Zero(t, s.value("waybill_ungrouped_total", "sink=events"))
		require.Nil(t, s.series("waybill_superseded_total", "sink=plain"), "it does not collect")
		update := func(n int) {
			for range n {
				_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'k', '{}'), ('order.placed', '', '{}')`)
				require.NoError(t, err)
			}
		}
		counted := func(ungrouped float64) {
			t.Helper()
			await(t, m, ungrouped, "waybill_ungrouped_total", "sink=events")
			require.Eventually(t, func() bool { // each of the key is delivered or superseded
				s := scrape(t, m)
				return s.value("waybill_superseded_total", "sink=events")+s.value("waybill_attempts_total", "sink=events", "result=delivered") == 2*ungrouped
			}, patience, 10*time.Millisecond)
		}
		update(3)
		counted(3)
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"events": {Sink: &other{}, Collect: newest}}, route.Routes{"order.*": route.To("events")}))
		require.Equal(t, 3.0, scrape(t, m).value("waybill_ungrouped_total", "sink=events"))
		update(2)
		counted(5)
		stop() // what was counted since the last scrape is kept
		update(1)
		o.run(t, m, c)
		counted(6)
	})
}

// other is a sink that a reload recognizes as another one.
type other struct{ _ int }

func (*other) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

func TestNativeHistogramsAreScrapedBesideClassicBuckets(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	m := observe.New(observe.Config{})
	o.publish(t, "order.placed", 3)
	o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}}))
	await(t, m, 3, "waybill_attempts_total", "sink=events", "result=delivered")
	server := httptest.NewServer(m)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if family.GetName() != "waybill_delivery_duration_seconds" {
			continue
		}
		h := scraped{"": &family}.series("", "sink=events").GetHistogram()
		require.EqualValues(t, 3, h.GetSampleCount())
		require.NotEmpty(t, h.GetPositiveSpan())
		require.NotEmpty(t, h.GetBucket())
		return
	}
	t.Fatal("the histogram is missing")
}

func TestPublishedNotificationsAreCountedByTypeIfConfigured(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		asked, not := observe.New(observe.Config{Types: true}), observe.New(observe.Config{})
		for _, m := range []*observe.Monitor{asked, not} {
			p, err := publishing.New(registry.New(), o.store, publishing.Config{Published: m.Published})
			require.NoError(t, err)
			m.ExpectTypes("order.placed", "order.paid")
			require.NoError(t, p.RunInTx(t.Context(), o.db, nil, func(ctx context.Context, tx *sql.Tx) error {
				return p.Append(ctx, tx, []notification.Envelope{{Type: "order.paid", Payload: []byte("{}")}, {Type: "order.paid", Payload: []byte("{}")}}...)
			}))
		}
		s := scrape(t, asked)
		require.EqualValues(t, 2, s.value("waybill_published_total", "type=order.paid"))
		require.EqualValues(t, 0, s.value("waybill_published_total", "type=order.placed"))
		require.NotContains(t, scrape(t, not), "waybill_published_total")
	})
}

func TestTypesBeyondAHundredShareOneSeries(t *testing.T) {
	t.Parallel()
	m := observe.New(observe.Config{Types: true})
	for i := range 150 {
		m.Published([]notification.Envelope{{Type: "type." + strconv.Itoa(i)}, {Type: "type.0"}})
	}
	s := scrape(t, m)
	require.Len(t, s["waybill_published_total"].Metric, 101)
	require.EqualValues(t, 151, s.value("waybill_published_total", "type=type.0"))
	require.EqualValues(t, 1, s.value("waybill_published_total", "type=type.99"))
	require.EqualValues(t, 50, s.value("waybill_published_total", "type=_other"))
}

func TestJoinedObserversAreAllCalled(t *testing.T) {
	t.Parallel()
	require.Nil(t, observe.Join(nil, nil))
	o := onSQLite(t)
	one, two := observe.New(observe.Config{}), observe.New(observe.Config{})
	c := o.config(one, map[string]forwarder.Sink{"events": {Sink: byType{}}})
	c.Observer = observe.Join(nil, one, two)
	o.publish(t, "order.placed", 3)
	o.run(t, one, c)
	await(t, one, 3, "waybill_attempts_total", "sink=events", "result=delivered")
	await(t, two, 3, "waybill_attempts_total", "sink=events", "result=delivered")
	require.Eventually(t, func() bool { // both go on counting
		n := scrape(t, one).value("waybill_checkpoints_total", "result=written")
		return n > 0 && n == scrape(t, two).value("waybill_checkpoints_total", "result=written")
	}, patience, 10*time.Millisecond)
}

// get requests a probe.
func get(t testing.TB, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func requireProbe(t testing.TB, m *observe.Monitor, path string, code int, text string) {
	t.Helper()
	var gotCode int
	var got string
	require.Eventually(t, func() bool {
		gotCode, got = get(t, m, path)
		return gotCode == code && strings.Contains(got, text)
	}, patience, 10*time.Millisecond, "%s: %s", path, fmt.Sprint(gotCode, got))
}

func TestAProcessIsReadyWhileItsForwarderReachesTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{})
		requireProbe(t, m, "/livez", http.StatusOK, "live")
		requireProbe(t, m, "/readyz", http.StatusServiceUnavailable, "no forwarder has opened the database yet")
		o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}}))
		requireProbe(t, m, "/readyz", http.StatusOK, "ready")
		requireProbe(t, m, "/readyz?verbose", http.StatusOK, "[+] schema: current")
		requireProbe(t, m, "/healthz", http.StatusOK, "live")
		m.Stop()
		requireProbe(t, m, "/readyz", http.StatusServiceUnavailable, "the program is stopping")
		requireProbe(t, m, "/livez", http.StatusOK, "live")
		requireProbe(t, m, "/", http.StatusNotFound, "")
	})
}

func TestAProcessIsNotReadyWhileItCannotLeaseAlthoughTheLogAnswers(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		m := observe.New(observe.Config{})
		c := o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}})
		c.Lease = time.Second
		f, _ := o.run(t, m, c)
		requireProbe(t, m, "/readyz?verbose", http.StatusOK, "[+] leases: a look")
		failed := func() error { return f.Figures().Databases[0].Failed }
		require.Eventually(t, func() bool { return failed() == nil }, patience, 10*time.Millisecond)

		_, err := o.db.ExecContext(t.Context(), `ALTER TABLE outbox_cursors RENAME TO away`)
		require.NoError(t, err)
		requireProbe(t, m, "/readyz", http.StatusServiceUnavailable, "not ready: leases: no look for")
		require.Eventually(t, func() bool {
			err := failed()
			return err != nil && strings.Contains(err.Error(), "outbox_cursors")
		}, patience, 10*time.Millisecond, "a fleet shows it as failing")

		_, err = o.db.ExecContext(t.Context(), `ALTER TABLE away RENAME TO outbox_cursors`)
		require.NoError(t, err)
		requireProbe(t, m, "/readyz", http.StatusOK, "ready")
	})
}

func TestAnOpenBreakerAndALagDoNotMakeAProcessUnready(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	m := observe.New(observe.Config{Interval: 10 * time.Millisecond})
	sampling(t, m)
	o.publish(t, "order.placed", 3)
	o.run(t, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{"order.placed": sinks.Unavailable(errors.New("down"))}}}))
	await(t, m, 1, "waybill_breaker_open", "sink=events")
	s := await(t, m, 3, "waybill_sink_pending", "sink=events")
	require.Positive(t, s.value("waybill_sink_lag_seconds", "sink=events"))
	requireProbe(t, m, "/readyz", http.StatusOK, "ready")
	requireProbe(t, m, "/livez", http.StatusOK, "live")
}

// stuck is an observer that does not return.
type stuck struct {
	leave chan struct{}
}

func (s stuck) Observe(e event.Event) {
	if _, ok := e.(*event.Look); ok {
		<-s.leave
	}
}

func TestAProcessWhoseLoopStandsStillIsNotLive(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	m := observe.New(observe.Config{})
	m.SetPatience(-11900 * time.Millisecond) // with four leases of 3 s: 0.1 s
	s := stuck{leave: make(chan struct{})}
	c := o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}})
	c.Lease = 3 * time.Second
	c.Observer = observe.Join(m, s)
	_, stop := o.run(t, m, c)
	defer stop()
	defer close(s.leave)
	requireProbe(t, m, "/livez", http.StatusServiceUnavailable, "the loop that looks at the log has not run")
}
