package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
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
	// Types are the most frequent types among the last Counted rows of the log.
	Types   []store.TypeCount
	Counted int64
}

// shownTypes is how many types the overview shows.
const shownTypes = 8

// total is a sum of counts. Some of them may have stopped at the limit; more says so. Or they may be
// estimates.
type total struct {
	n               int64
	more, estimated bool
}

func (t *total) add(n int64) {
	t.n += n
	t.more = t.more || n >= store.PendingLimit
}

func (t total) String() string {
	switch {
	case t.estimated:
		return admin.CountText(t.n, true)
	case t.more:
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
	// Sink is the affected sink; "" for the whole outbox. Path is the page that shows more and acts on it, and Act
	// the text of the link; "" for none.
	Sink, Path, Act string
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

// Waiting returns Pending as a text.
func (s sinkRow) Waiting() string { return admin.CountText(int64(s.Pending), s.Estimated) }

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
	if snapshot.Err == nil {
		page.Troubles = append(page.Troubles, r.troubledEndpoints(ctx)...)
	}
	for _, s := range snapshot.Sample.Sinks {
		row := r.sinkRow(snapshot, s)
		page.Troubles = append(page.Troubles, row.troubles()...)
		page.Sinks = append(page.Sinks, row)
		page.Done += row.Hour.Done
		page.Failed += row.Hour.Failed + row.Hour.Dead
		page.Pending.n += int64(row.Pending)
		page.Pending.estimated = page.Pending.estimated || row.Estimated
		for _, k := range row.Kept {
			switch k.State {
			case store.StateDead:
				page.Dead.add(k.Count)
			case store.StateRetrying:
				page.Retrying.add(k.Count)
			}
		}
	}
	if snapshot.Err == nil {
		page.Counted = countedRows
		if page.Types, err = r.frequentTypes(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(page.Troubles, func(a, b trouble) int { return len(a.Class) - len(b.Class) }) // bad, then warn
	return page, nil
}

// frequentTypes counts the last rows of the log by type, and returns the types with the most.
func (r *request) frequentTypes(ctx context.Context) (all []store.TypeCount, err error) {
	counts, err := r.Admin.Types(ctx, countedRows)
	for _, c := range counts { // by type and version
		if n := len(all); n > 0 && all[n-1].Type == c.Type {
			all[n-1].Rows += c.Rows
		} else if c.Rows > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b store.TypeCount) int { return cmp.Compare(b.Rows, a.Rows) })
	return all[:min(len(all), shownTypes)], err
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
	row.Wrong = l.Troubles(&s, admin.Usual)
	row.State = stateOf(row.Wrong)
	return row
}

// badges are the states of sinks with a trouble.
var badges = map[string]badge{
	admin.Paused: {Class: "warn", Word: "paused"}, admin.BreakerOpen: {Class: "bad", Word: "breaker open"},
	admin.NoForwarder: {Class: "bad", Word: "stopped"}, admin.LanesUnowned: {Class: "bad", Word: "partly stopped"},
	admin.Throttled: {Class: "warn", Word: "throttled"}, admin.Late: {Class: "warn", Word: "late"},
	admin.Failing: {Class: "bad", Word: "failing"}, admin.DeadLetters: {Class: "warn", Word: "dead letters"},
	admin.Overdue: {Class: "warn", Word: "overdue"}, admin.HookFails: {Class: "warn", Word: "a hook fails"},
	admin.UnknownType: {Class: "warn", Word: "unknown type"}, admin.Destinations: {Class: "warn", Word: "some destinations fail"},
}

// actsOn are where a person acts on a trouble of a sink: a state of its parked deliveries, or "" for the page of the
// sink, and the text of the link.
var actsOn = map[string]struct {
	state store.State
	act   string
}{
	admin.DeadLetters: {store.StateDead, "Requeue or discard"}, admin.Failing: {store.StateRetrying, "Look at the errors"},
	admin.Overdue: {store.StateRetrying, "Look at them"}, admin.HookFails: {store.StateSettling, "Look at them"},
	admin.Paused: {"", "Resume"},
}

// stateOf returns the state of a sink, by the worst of its troubles.
func stateOf(wrong []admin.Trouble) badge {
	if len(wrong) == 0 || badges[wrong[0].What].Word == "" {
		return badge{Class: "good", Word: "ok"}
	}
	state := badges[wrong[0].What]
	if wrong[0].Of > 0 && wrong[0].Count == wrong[0].Of {
		state.Word = "stopped"
	}
	state.Text = cut(wrong[0].Text, 300)
	return state
}

// troubles returns the troubles of a sink, without those of the whole outbox and of its single
// destinations.
func (s *sinkRow) troubles() (all []trouble) {
	noForwarder := slices.ContainsFunc(s.Wrong, func(t admin.Trouble) bool { return t.What == admin.NoForwarder })
	for _, t := range s.Wrong {
		if t.Destination != "" || noForwarder && (t.What == admin.NoForwarder || t.What == admin.Overdue) {
			continue
		}
		shown := trouble{ID: t.What + " " + s.Sink, Class: cmp.Or(badges[t.What].Class, "warn"), Text: cut(t.Text, 300), Sink: s.Sink}
		if to, known := actsOn[t.What]; known {
			shown.Act, shown.Path = to.act, sinkPath(s.Sink)
			if to.state != "" {
				shown.Path = "/parked?" + url.Values{"sink": {s.Sink}, "state": {string(to.state)}}.Encode()
			}
		}
		all = append(all, shown)
	}
	return all
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
