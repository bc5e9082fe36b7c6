package observe

import (
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// poolName is the label db_name of the pool's metrics.
const poolName = "outbox"

// described has all metrics, for Describe.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("waybill_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// withDatabase maps each sampled metric to its variant with the label database, for a forwarder of
// several databases.
var withDatabase = make(map[*prometheus.Desc]*prometheus.Desc)

// describeSampled is describe for a metric that is sampled from a database.
func describeSampled(name, help string, labels ...string) *prometheus.Desc {
	d := describe(name, help, labels...)
	withDatabase[d] = prometheus.NewDesc("waybill_"+name, help, append(slices.Clone(labels), "database"), nil)
	return d
}

// Metrics of this process.
var (
	attemptsTotal      = describe("attempts_total", "Attempts of deliveries, by result.", "sink", "result")
	deadTotal          = describe("dead_total", "Deliveries that became dead, by reason.", "sink", "reason")
	parkedTotal        = describe("parked_total", "Deliveries that were parked, by state.", "sink", "state")
	collectionsTotal   = describe("collections_total", "Deliveries of several notifications as one, of sinks that collect.", "sink")
	supersededTotal    = describe("superseded_total", "Notifications that were not delivered since a newer one of their group was, of sinks that collect.", "sink")
	ungroupedTotal     = describe("ungrouped_total", "Notifications without a group, which are delivered alone, of sinks that collect.", "sink")
	inFlight           = describe("in_flight", "Deliveries in flight.", "sink")
	threshold          = describe("threshold", "Maximum number of deliveries or batches in flight; the current value if it is adaptive.", "sink")
	pendingInMemory    = describe("pending_in_memory", "Deliveries in memory that are not settled.", "sink")
	abandonedCalls     = describe("abandoned_calls", "Calls of the sink that have not returned after their deadline.", "sink")
	breakerOpen        = describe("breaker_open", "1 while the sink's breaker is open, otherwise 0.", "sink")
	throttledUntil     = describe("throttled_until_timestamp_seconds", "Until when the sink is throttled; 0 if it is not.", "sink")
	checkpointsTotal   = describe("checkpoints_total", "Checkpoints, written and failed.", "result")
	deliveryDuration   = describe("delivery_duration_seconds", "Duration of calls of the sink. Each delivery counts once, in a batch with the duration of the whole call.", "sink")
	deliveryLag        = describe("delivery_lag_seconds", "Time between a notification's occurrence, or its due time if that is later, and its delivery.", "sink")
	deliveryBatch      = describe("delivery_batch_size", "Deliveries in a batch, of sinks that accept batches.", "sink")
	checkpointDuration = describe("checkpoint_duration_seconds", "Duration of checkpoints.")
	leaseLosses        = describe("lease_losses_total", "Leases that were lost, not released.")
	rebasesTotal       = describe("rebases_total", "Lanes that read the log again from its oldest row.")
	wakeupsTotal       = describe("wakeups_total", "Reads of the log, by cause.", "by")
	listening          = describe("listening", "1 while the database announces new rows, otherwise 0.")
	databaseErrors     = describe("database_errors_total", "Failed statements, which are tried again, by operation.", "op")
	removedRows        = describe("retention_removed_rows_total", "Rows of the log that retention has removed row by row.")
	removedParts       = describe("retention_dropped_partitions_total", "Partitions of the log that retention has dropped.")
	retention          = describe("retention_seconds", "How long rows stay in the log; absent if they stay forever.")
	publishedTotal     = describe("published_total", "Notifications that this process has written to the log, by type, including those of transactions that rolled back; off by default.", "type")
	reloadSuccess      = describe("config_reload_success", "1 if the last reload of the configuration was applied, otherwise 0.")
	buildInfo          = describe("build_info", "1, with the versions of the program and of Go.", "version", "go_version")
)

// Metrics sampled from the database. They are the same in every process of one outbox.
var (
	sinkLag         = describeSampled("sink_lag_seconds", "Age of the oldest row that the sink has not settled. While samples fail, it grows with the time since the last sample.", "sink")
	sinkPending     = describeSampled("sink_pending", "Rows that the sink has not settled. Above 10,000, it is an estimate.", "sink")
	parked          = describeSampled("parked", "Parked deliveries by state, up to 10,000.", "sink", "state")
	parkedOldest    = describeSampled("parked_oldest_timestamp_seconds", "When the oldest parked delivery was first parked; 0 if there is none. Cancelled deliveries count as scheduled.", "sink", "state")
	parkedOverdue   = describeSampled("parked_overdue", "Parked deliveries that were due more than a minute ago, up to 10,000.", "sink")
	haltedKeys      = describeSampled("halted_keys", "Keys with a dead delivery, of sinks with on_dead: halt, up to 10,000.", "sink")
	sinkPaused      = describeSampled("sink_paused", "1 while the sink is paused, otherwise 0.", "sink")
	lanes           = describeSampled("lanes", "Lanes of the sink, owned by a forwarder or free.", "sink", "state")
	forwarders      = describeSampled("forwarders", "Forwarders that are running.")
	heldTransaction = describeSampled("held_transaction_seconds", "Age of the oldest open transaction that has written to the log, as far as the database shows it.")
	sourceRetention = describeSampled("source_retention_seconds", "How long the source keeps records, delivered or not; absent if the log is in the database, or if records stay forever.")
	logSize         = describeSampled("log_size_bytes", "Size of the log with its indexes; on SQLite, of the file.")
	logOldest       = describeSampled("log_oldest_timestamp_seconds", "When the oldest row of the log occurred; 0 if the log is empty.")
	sampleTimestamp = describeSampled("sample_timestamp_seconds", "When the last sample was taken; 0 before the first one.")
	sampleDuration  = describeSampled("sample_duration_seconds", "Duration of the last sample.")

	databaseState = describe("database_state", "1 for the state of each of several databases in this process: elsewhere, opening, awake, asleep or failing.", "database", "state")
)

// Describe lists the metrics of Collect.
func (m *Monitor) Describe(to chan<- *prometheus.Desc) {
	for _, d := range described {
		if variant := withDatabase[d]; variant != nil && m.config.Databases {
			d = variant
		}
		to <- d
	}
	collectors.NewDBStatsCollector(nil, poolName).Describe(to)
}

// Collect returns the current metrics. It does not use the database.
func (m *Monitor) Collect(to chan<- prometheus.Metric) {
	out := metrics(to)
	out.gauge(buildInfo, 1, m.config.Version, runtime.Version())
	target, pool := m.watched()
	var figures forwarder.Figures
	if target != nil {
		figures = m.figures(target)
	}
	for _, s := range figures.Sinks {
		m.counts(s.Sink) // creates those of a new sink
	}
	m.collectCounts(out)
	m.collectTotals(out)
	collectFigures(out, figures)
	m.collectSamples(out, target, figures)
	if pool != nil {
		pool.Collect(to)
	}
}

// metrics is the channel of Collect.
type metrics chan<- prometheus.Metric

func (m metrics) counter(d *prometheus.Desc, value uint64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func (m metrics) gauge(d *prometheus.Desc, value float64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// histogram sends a histogram, with the label sink if a sink is given.
func (m metrics) histogram(d *prometheus.Desc, h *histogram, sink ...string) {
	s := series{histogram: h, desc: d}
	for i := range sink {
		s.labels = append(s.labels, &dto.LabelPair{Name: proto.String("sink"), Value: &sink[i]})
	}
	m <- s
}

func (m *Monitor) collectCounts(out metrics) {
	for sink, c := range *m.sinks.Load() {
		c.mu.Lock()
		attempts, dead, parked := c.attempts, maps.Clone(c.dead), maps.Clone(c.parked)
		duration, lag, batch := c.duration.clone(), c.lag.clone(), c.batch.clone()
		c.mu.Unlock()
		out.histogram(deliveryDuration, duration, sink)
		out.histogram(deliveryLag, lag, sink)
		out.histogram(deliveryBatch, batch, sink)
		for i, result := range results {
			out.counter(attemptsTotal, attempts[i], sink, result)
		}
		for _, reason := range event.DeadReasons() {
			out.counter(deadTotal, dead[reason], sink, reason.String())
		}
		for _, state := range parkedStates {
			out.counter(parkedTotal, parked[state], sink, string(state))
		}
	}
}

func (m *Monitor) collectTotals(out metrics) {
	m.mu.Lock()
	t := m.totals
	t.wakeups, t.errors, t.published = maps.Clone(t.wakeups), maps.Clone(t.errors), maps.Clone(t.published)
	checkpoint, collected := t.checkpoint.clone(), maps.Clone(m.collected)
	m.mu.Unlock()
	out.histogram(checkpointDuration, checkpoint)
	out.counter(checkpointsTotal, t.written, "written")
	out.counter(checkpointsTotal, t.failed, "failed")
	out.counter(leaseLosses, t.lost)
	out.counter(rebasesTotal, t.rebased)
	for _, by := range []event.LookCause{event.LookPoll, event.LookAsked, event.LookListened} {
		out.counter(wakeupsTotal, t.wakeups[by], string(by))
	}
	for _, op := range event.DatabaseOps() {
		out.counter(databaseErrors, t.errors[op], string(op))
	}
	out.counter(removedRows, t.rows)
	out.counter(removedParts, t.partitions)
	for typ, n := range t.published {
		out.counter(publishedTotal, n, typ)
	}
	for sink, c := range collected {
		out.counter(collectionsTotal, uint64(c.Collections), sink)
		out.counter(supersededTotal, uint64(c.Superseded), sink)
		out.counter(ungroupedTotal, uint64(c.Ungrouped), sink)
	}
	out.gauge(reloadSuccess, truth(!t.reloadFailed))
}

func collectFigures(out metrics, f forwarder.Figures) {
	for _, s := range f.Sinks {
		out.gauge(inFlight, float64(s.InFlight), s.Sink)
		out.gauge(threshold, float64(s.Threshold), s.Sink)
		out.gauge(pendingInMemory, float64(s.Pending), s.Sink)
		out.gauge(abandonedCalls, float64(s.Abandoned), s.Sink)
		out.gauge(breakerOpen, truth(s.BreakerOpen), s.Sink)
		out.gauge(throttledUntil, seconds(s.ThrottledUntil), s.Sink)
	}
	out.gauge(listening, truth(f.Listening))
	if f.Retention > 0 && f.Retention != forwarder.KeepForever {
		out.gauge(retention, f.Retention.Seconds())
	}
}

// from sends the metrics of one database.
type from struct {
	metrics
	database string // "" for the only one
}

func (f from) gauge(d *prometheus.Desc, value float64, labels ...string) {
	if variant := withDatabase[d]; variant != nil && f.database != "" {
		d, labels = variant, append(labels, f.database)
	}
	f.metrics.gauge(d, value, labels...)
}

func (m *Monitor) collectSamples(out metrics, target *Target, figures forwarder.Figures) {
	if target == nil || target.Databases == nil {
		if !m.config.Databases {
			m.collectSample(from{out, ""}, figures)
		}
		return
	}
	for _, d := range target.Databases() {
		out.gauge(databaseState, 1, d.Name, d.State)
		if m.config.Databases && d.Store != nil {
			m.collectSample(from{out, d.Name}, figures)
		}
	}
}

// collectSample sends the last sample of a database.
func (m *Monitor) collectSample(out from, figures forwarder.Figures) {
	m.mu.Lock()
	var s sample
	if taken := m.samples[out.database]; taken != nil {
		s = *taken
	}
	m.mu.Unlock()
	out.gauge(sampleTimestamp, seconds(s.at))
	out.gauge(sampleDuration, s.took.Seconds())
	if s.at.IsZero() {
		for sink := range *m.sinks.Load() {
			out.gauge(sinkLag, s.age(m.began).Seconds(), sink)
		}
		return
	}
	for i := range s.Sinks {
		out.sink(&s, &s.Sinks[i], m.began, figures)
	}
	out.gauge(forwarders, float64(s.Forwarders))
	out.gauge(heldTransaction, s.Held.Seconds())
	if s.Source == "" {
		out.gauge(logSize, float64(s.LogBytes))
		out.gauge(logOldest, seconds(oldestOf(s.Oldest)))
	} else if s.Keeps > 0 {
		out.gauge(sourceRetention, s.Keeps.Seconds())
	}
}

// sink sends the sampled metrics of one sink.
func (f from) sink(s *sample, sink *store.SinkSample, began time.Time, figures forwarder.Figures) {
	if sink.Pending > 0 || !sink.Estimated { // otherwise neither is known
		f.gauge(sinkLag, (sink.Lag + s.age(began)).Seconds(), sink.Sink)
		f.gauge(sinkPending, float64(sink.Pending), sink.Sink)
	}
	for _, p := range sink.Parked.States {
		f.gauge(parked, float64(p.Count), sink.Sink, string(p.State))
		f.gauge(parkedOldest, seconds(p.Oldest), sink.Sink, string(p.State))
	}
	f.gauge(parkedOverdue, float64(sink.Parked.Overdue), sink.Sink)
	if slices.ContainsFunc(figures.Sinks, func(f forwarder.SinkFigures) bool {
		return f.Sink == sink.Sink && f.OnDead == forwarder.OnDeadHalt
	}) {
		f.gauge(haltedKeys, float64(sink.Parked.DeadKeys), sink.Sink)
	}
	f.gauge(sinkPaused, truth(sink.Paused), sink.Sink)
	f.gauge(lanes, float64(sink.Owned), sink.Sink, "owned")
	f.gauge(lanes, float64(sink.Free), sink.Sink, "free")
}

func oldestOf(row *store.Row) time.Time {
	if row == nil {
		return time.Time{}
	}
	return row.OccurredOn
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds returns a time as Unix seconds; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
