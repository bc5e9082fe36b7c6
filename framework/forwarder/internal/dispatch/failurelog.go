package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/sinks"
)

// failureLog has the kinds of failures that had a line in the log in the last 10 s. Further failures of a kind are
// counted until its next line, so that an outage does not flood the log. The dispatcher's mutex guards it.
type failureLog struct {
	counts map[failureKind]int // since the kind's last line
	timer  *time.Timer         // writes the lines with the counts
}

// failureKind is what lines of the log count together.
type failureKind struct {
	level    slog.Level
	message  string
	class    sinks.Class
	database string
}

// logEvery is the time between two lines that count failures.
const logEvery = 10 * time.Second

// logFailure logs the failure of a delivery, or counts it.
func (d *Dispatcher) logFailure(level slog.Level, message string, f *failure, more ...any) {
	kind := failureKind{level, message, f.class, f.lane.lease.Lane.Database}
	if n, known := d.failures.counts[kind]; known {
		d.failures.counts[kind] = n + 1
		return
	}
	if len(d.failures.counts) == 0 {
		d.failures.timer.Reset(logEvery)
	}
	d.failures.counts[kind] = 0
	if u := f.unit; u != nil {
		more = append(more, "group", u.ref.Group, "members", len(u.members), "first", u.members[0].Envelope.ID)
	}
	f.lane.log.Log(f.call.logged(), level, message,
		append([]any{"type", f.Type, "id", f.ID, "attempt", f.Attempt, "class", f.class.String(), "error", f.err}, more...)...)
}

// logFailureCounts is called some time after the first failure.
func (d *Dispatcher) logFailureCounts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logCounts()
	if len(d.failures.counts) > 0 && !d.stopping {
		d.failures.timer.Reset(logEvery)
	}
}

// logCounts logs what was counted since the last line, and forgets the kinds of which there was nothing.
func (d *Dispatcher) logCounts() {
	for kind, n := range d.failures.counts {
		if n == 0 {
			delete(d.failures.counts, kind)
			continue
		}
		d.failures.counts[kind] = 0
		d.LogOf(kind.database).Log(context.Background(), kind.level, kind.message, "class", kind.class.String(), "more", n)
	}
}
