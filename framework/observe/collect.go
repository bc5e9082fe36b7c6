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

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// poolName is the label db_name of the pool's figures.
const poolName = "outbox"

// described collects what Describe is to list.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("waybill_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// twins are the descriptions with the label database, of what is sampled from each of several databases.
var twins = make(map[*prometheus.Desc]*prometheus.Desc)

// sampledFrom is describe for what is sampled.
func sampledFrom(name, help string, labels ...string) *prometheus.Desc {
	d := describe(name, help, labels...)
	twins[d] = prometheus.NewDesc("waybill_"+name, help, append(slices.Clone(labels), "database"), nil)
	return d
}

// What this process does.
var (
	attemptsTotal      = describe("attempts_total", "Attempts of deliveries, by what came of them.", "sink", "result")
	deadTotal          = describe("dead_total", "Deliveries that were given up, by why.", "sink", "reason")
	parkedTotal        = describe("parked_total", "Deliveries that were parked, by the state that they were parked in.", "sink", "state")
	inFlight           = describe("in_flight", "Deliveries in the sink's hands.", "sink")
	threshold          = describe("threshold", "Most deliveries, or batches, in flight; where that is adaptive, as it is now.", "sink")
	pendingInMemory    = describe("pending_in_memory", "Deliveries that were read and are not settled.", "sink")
	abandonedCalls     = describe("abandoned_calls", "Calls of the sink that have not come back after their deadline.", "sink")
	breakerOpen        = describe("breaker_open", "1 while the sink's breaker is open, else 0.", "sink")
	throttledUntil     = describe("throttled_until_timestamp_seconds", "Until when the sink waits for its destination; 0: it does not.", "sink")
	checkpointsTotal   = describe("checkpoints_total", "Checkpoints that were written, and tries that failed.", "result")
	deliveryDuration   = describe("delivery_duration_seconds", "How long calls of the sink took, by delivery: in a batch that of the whole batch.", "sink")
	deliveryLag        = describe("delivery_lag_seconds", "Time from when a notification occurred, or was due if that is later, to its delivery.", "sink")
	deliveryBatch      = describe("delivery_batch_size", "Deliveries in a batch, of sinks that take batches.", "sink")
	checkpointDuration = describe("checkpoint_duration_seconds", "How long the writing of checkpoints took.")
	leaseLosses        = describe("lease_losses_total", "Leases that were lost, not given back.")
	rebasesTotal       = describe("rebases_total", "Lanes that read the log again from its oldest row.")
	wakeupsTotal       = describe("wakeups_total", "Looks at the log, by what caused them.", "by")
	listening          = describe("listening", "1 while the database announces new rows, else 0.")
	databaseErrors     = describe("database_errors_total", "Uses of the database that failed and are tried again, by what for.", "op")
	removedRows        = describe("retention_removed_rows_total", "Rows of the log that retention has removed one by one.")
	removedParts       = describe("retention_dropped_partitions_total", "Partitions of the log that retention has dropped.")
	retention          = describe("retention_seconds", "How long rows stay in the log; there is no series where they stay forever.")
	publishedTotal     = describe("published_total", "Notifications that this process has written to the log, by type, if that is asked for; also those of transactions that rolled back.", "type")
	reloadSuccess      = describe("config_reload_success", "1 if the configuration that was read last was taken over, else 0.")
	buildInfo          = describe("build_info", "1, with what the program was built from.", "version", "go_version")
)

// What was sampled from the database: the same in every process of one outbox.
var (
	sinkLag         = sampledFrom("sink_lag_seconds", "How long ago the oldest row occurred that the sink has not settled. While samples fail it grows with the time since the last one.", "sink")
	sinkPending     = sampledFrom("sink_pending", "Rows that the sink has not settled, up to 10,000.", "sink")
	parked          = sampledFrom("parked", "Parked deliveries by state, up to 10,000.", "sink", "state")
	parkedOldest    = sampledFrom("parked_oldest_timestamp_seconds", "When the oldest parked delivery was parked for the first time; 0: there is none. Cancelled ones count among the scheduled here.", "sink", "state")
	parkedOverdue   = sampledFrom("parked_overdue", "Parked deliveries that were due more than a minute ago, up to 10,000.", "sink")
	haltedKeys      = sampledFrom("halted_keys", "Keys with a dead delivery, of sinks with on_dead: halt, up to 10,000.", "sink")
	sinkPaused      = sampledFrom("sink_paused", "1 while a person has paused the sink, else 0.", "sink")
	lanes           = sampledFrom("lanes", "Lanes of the sink that a forwarder works on, and others.", "sink", "state")
	forwarders      = sampledFrom("forwarders", "Forwarders that live.")
	heldTransaction = sampledFrom("held_transaction_seconds", "For how long the oldest open transaction is open that has written to the log, as far as the database shows it.")
	sourceRetention = sampledFrom("source_retention_seconds", "How long the source keeps records, whether they were delivered or not; there is no series where the log is the database's, or keeps them forever.")
	logSize         = sampledFrom("log_size_bytes", "Size of the log with its indexes; on SQLite of the file.")
	logOldest       = sampledFrom("log_oldest_timestamp_seconds", "When the oldest row occurred that is in the log; 0: it is empty.")
	sampleTimestamp = sampledFrom("sample_timestamp_seconds", "When the last sample was taken; 0: none was yet.")
	sampleDuration  = sampledFrom("sample_duration_seconds", "How long the last sample took.")

	databaseState = describe("database_state", "1 for the state in which the database is in this process, of several databases: elsewhere, opening, awake, asleep or failing.", "database", "state")
)

// Describe lists the metrics of Collect.
func (m *Monitor) Describe(to chan<- *prometheus.Desc) {
	for _, d := range described {
		if twin := twins[d]; twin != nil && m.config.Databases {
			d = twin
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
		figures = target.Forwarder.Figures()
	}
	for _, s := range figures.Sinks {
		m.counts(s.Sink) // of a sink that is new
	}
	m.collectCounts(out)
	m.collectTotals(out)
	collectFigures(out, figures)
	m.collectSamples(out, target, figures)
	if pool != nil {
		pool.Collect(to)
	}
}

// metrics is where they go.
type metrics chan<- prometheus.Metric

func (m metrics) counter(d *prometheus.Desc, value uint64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

func (m metrics) gauge(d *prometheus.Desc, value float64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// histogram hands over one of a sink, or one without labels.
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
		for _, reason := range forwarder.DeadReasons() {
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
	checkpoint := t.checkpoint.clone()
	m.mu.Unlock()
	out.histogram(checkpointDuration, checkpoint)
	out.counter(checkpointsTotal, t.written, "written")
	out.counter(checkpointsTotal, t.failed, "failed")
	out.counter(leaseLosses, t.lost)
	out.counter(rebasesTotal, t.rebased)
	for _, by := range []forwarder.WakeCause{forwarder.WakePoll, forwarder.WakeAsked, forwarder.WakeListened} {
		out.counter(wakeupsTotal, t.wakeups[by], string(by))
	}
	for _, op := range forwarder.DatabaseOps() {
		out.counter(databaseErrors, t.errors[op], string(op))
	}
	out.counter(removedRows, t.rows)
	out.counter(removedParts, t.partitions)
	for typ, n := range t.published {
		out.counter(publishedTotal, n, typ)
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

// from is where the figures of one database go.
type from struct {
	metrics
	database string // "" for the only one
}

func (f from) gauge(d *prometheus.Desc, value float64, labels ...string) {
	if twin := twins[d]; twin != nil && f.database != "" {
		d, labels = twin, append(labels, f.database)
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

// collectSample hands over the last sample of a database.
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

// sink hands over what was sampled for one sink.
func (f from) sink(s *sample, sink *store.SinkSample, began time.Time, figures forwarder.Figures) {
	if sink.Pending > 0 || !sink.Uncounted { // else neither is known
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

// seconds is a time as metrics have it; 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
