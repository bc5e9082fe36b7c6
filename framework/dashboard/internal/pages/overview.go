package pages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store"
)

// overviewPage is the data of the first page.
type overviewPage struct {
	Seen     seen
	Troubles []trouble
	Sinks    []sinkRow
	// Done and Failed count the last hour of all sinks; Pending, Dead and Retrying the present.
	Done, Failed            int64
	Pending, Dead, Retrying total
	Forwarders              int
}

// total is a sum of counts. Some of them may have stopped at the limit; more says so.
type total struct {
	n    int64
	more bool
}

func (t *total) add(n int64) {
	t.n += n
	t.more = t.more || n >= store.PendingLimit
}

func (t total) String() string {
	if t.more {
		return strings.TrimSuffix(count(t.n), "+") + "+"
	}
	return count(t.n)
}

// seen is the time of a page's figures.
type seen struct {
	At time.Time
	// Err is why there are no newer figures; "" if there is no error.
	Err string
}

// trouble is a problem that needs a person.
type trouble struct {
	// ID stays the same while the trouble lasts.
	ID string
	// Class is "bad" if deliveries have stopped, and "warn" for what may wait.
	Class, Text, Fix string
	// Sink is the affected sink; "" for the whole outbox.
	Sink string
}

// sinkRow is a sink in the overview.
type sinkRow struct {
	store.SinkSample
	// Wrong is what is wrong with it, and State the worst of it.
	Wrong   []admin.Trouble
	State   badge
	Hour    hour
	Running *store.SinkRunning // nil if not known
	Kept    []kept
	Oldest  time.Time // when the oldest parked delivery was parked
	Behind  time.Duration
}

// Waiting returns Pending as an int64, for the template function count.
func (s sinkRow) Waiting() int64 { return int64(s.Pending) }

// kept counts the parked deliveries of a sink in one state.
type kept struct {
	State store.State
	Class string
	Count int64
}

// badge is a state in one or a few words, with a longer text.
type badge struct{ Class, Word, Text string }

// overview is the first page.
func overview(ctx context.Context, r *request) (any, error) {
	snapshot, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	page := overviewPage{Seen: seenOf(snapshot), Troubles: outboxTroubles(snapshot), Forwarders: snapshot.Sample.Forwarders}
	for _, s := range snapshot.Sample.Sinks {
		row := r.sinkRow(snapshot, s)
		page.Troubles = append(page.Troubles, row.troubles()...)
		page.Sinks = append(page.Sinks, row)
		page.Done += row.Hour.Done
		page.Failed += row.Hour.Failed + row.Hour.Dead
		page.Pending.add(row.Waiting())
		for _, k := range row.Kept {
			switch k.State {
			case store.StateDead:
				page.Dead.add(k.Count)
			case store.StateRetrying:
				page.Retrying.add(k.Count)
			}
		}
	}
	slices.SortStableFunc(page.Troubles, func(a, b trouble) int { return len(a.Class) - len(b.Class) }) // bad, then warn
	return page, nil
}

// snapshot returns the last sample of the outbox. It fails only if there is none yet.
func (r *request) snapshot(ctx context.Context) (history.Snapshot, error) {
	snapshot := r.Store.Snapshot(r.History.Snapshot(ctx))
	switch {
	case !snapshot.At.IsZero():
		return snapshot, nil
	case snapshot.Err != nil:
		return snapshot, snapshot.Err
	case ctx.Err() != nil:
		return snapshot, ctx.Err()
	}
	return snapshot, errNoSample
}

// errNoSample is what pages with figures show until the first sample. The browser reloads them.
var errNoSample = problem{http.StatusServiceUnavailable, "Waybill is reading the outbox for the first time. This page reloads itself."}

func seenOf(l history.Snapshot) seen {
	if l.Err != nil {
		return seen{l.At, l.Err.Error()}
	}
	return seen{At: l.At}
}

// sinkRow returns the figures and the state of a sink.
func (r *request) sinkRow(l history.Snapshot, s store.SinkSample) sinkRow {
	row := sinkRow{SinkSample: s, Hour: hourOf(r.History.Hour(s.Sink)), Behind: s.Lag}
	if running, known := l.Sinks[s.Sink]; known {
		row.Running = &running
	}
	if l.Err != nil && s.Pending > 0 {
		row.Behind += time.Since(l.At)
	}
	for _, p := range s.Parked.States {
		if !p.Oldest.IsZero() && (row.Oldest.IsZero() || p.Oldest.Before(row.Oldest)) {
			row.Oldest = p.Oldest
		}
		row.Kept = append(row.Kept, kept{p.State, map[store.State]string{store.StateDead: "bad", store.StateRetrying: "warn"}[p.State], int64(p.Count)})
	}
	s.Lag = row.Behind
	row.Wrong = l.Troubles(&s, admin.Tolerance{Lag: admin.LateAfter})
	row.State = badge{"good", "ok", ""}
	if len(row.Wrong) > 0 {
		if state := badgeOf(row.Wrong[0]); state.Word != "" {
			row.State = state
		}
	}
	return row
}

// badgeOf returns the state of a sink with a trouble; the zero value if the sink goes on as usual.
func badgeOf(t admin.Trouble) badge {
	switch t.What {
	case admin.Paused:
		return badge{"warn", "paused", "someone has paused this sink"}
	case admin.BreakerOpen:
		text := cut(t.Cause, 200)
		if !t.Since.IsZero() {
			text += ", since " + at(t.Since)
		}
		return badge{"bad", "breaker open", text}
	case admin.NoForwarder:
		return badge{"bad", "stopped", "no forwarder delivers to this sink"}
	case admin.LanesUnowned:
		if t.Count == t.Of {
			return badge{"bad", "stopped", "no forwarder delivers to this sink"}
		}
		return badge{"bad", "partly stopped", fmt.Sprintf("%s of %d without a forwarder", lanes(t.Count), t.Of)}
	case admin.Throttled:
		return badge{"warn", "throttled", strings.TrimPrefix(cut(t.Cause, 200)+", until ", ", ") + at(t.Until)}
	case admin.Late:
		return badge{"warn", "late", ""}
	}
	return badge{}
}

// troubles returns the troubles of a sink.
func (s *sinkRow) troubles() (all []trouble) {
	add := func(id, class, format string, args ...any) {
		all = append(all, trouble{ID: id + " " + s.Sink, Class: class, Text: fmt.Sprintf(format, args...), Sink: s.Sink})
	}
	noForwarder := s.is(admin.NoForwarder) // a trouble of the outbox
	switch state := s.State; {
	case state.Class == "good" || noForwarder && state.Word == "stopped":
	case state.Word == "late":
		add("state", state.Class, "%s late", span(s.Behind))
	default:
		add("state", state.Class, "%s: %s", state.Word, state.Text)
	}
	for _, p := range s.Parked.States {
		if p.State == store.StateDead && p.Count > 0 {
			add("dead", "warn", "%s dead, the oldest parked %s", count(int64(p.Count)), ago(p.Oldest))
		}
	}
	for _, t := range s.Wrong {
		switch {
		case t.What == admin.Overdue && !noForwarder:
			add("overdue", "warn", "%s parked and overdue for more than a minute", count(int64(t.Count)))
		case t.What == admin.Destinations && s.State.Word != "breaker open":
			add("destinations", "warn", "%d of its destinations throttled or with an open breaker", t.Count)
		}
	}
	return all
}

// is reports whether a sink has a trouble.
func (s *sinkRow) is(what string) bool {
	return slices.ContainsFunc(s.Wrong, func(t admin.Trouble) bool { return t.What == what })
}

func lanes(n int) string {
	if n == 1 {
		return "1 lane"
	}
	return fmt.Sprintf("%d lanes", n)
}

// outboxTroubles returns the troubles of the whole outbox.
func outboxTroubles(l history.Snapshot) (all []trouble) {
	if l.Err != nil {
		all = append(all, trouble{ID: "database", Class: "bad", Text: "The database does not answer: " + cut(l.Err.Error(), 300)})
	}
	if l.Sample.Forwarders == 0 && len(l.Sample.Sinks) > 0 {
		all = append(all, trouble{ID: "forwarders", Class: "bad", Text: "No forwarder is running, so nothing is delivered.", Fix: "waybill forward -c waybill.yaml"})
	}
	switch held := l.Sample.Held; {
	case l.Held != nil && l.Held.Status != doctor.Skip:
		all = append(all, trouble{ID: "held", Class: "bad", Text: "An open transaction holds the log: " + cut(l.Held.Text, 400), Fix: l.Held.Fix})
	case held >= admin.HeldAfter:
		all = append(all, trouble{ID: "held", Class: "bad", Text: "A transaction that has written to the log has been open for " + span(held) + ".", Fix: "waybill doctor --only held-transactions"})
	}
	if l.KeptTooLong && len(l.Holders) > 0 {
		text := "Rows stay in the log longer than its retention, because of " + l.Holders[0].Sink
		if n := len(l.Holders) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		if reason := l.Holders[0].Reason; reason != "" {
			text += ": " + cut(reason, 300)
		} else {
			text += ", since " + at(l.Holders[0].OccurredOn)
		}
		all = append(all, trouble{ID: "log", Class: "warn", Text: text})
	}
	return all
}
