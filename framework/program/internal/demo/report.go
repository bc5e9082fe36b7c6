package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/framework/program/internal/columns"
)

// Report compares what the receivers got with what the shop committed.
type Report struct {
	OK            bool         `json:"ok"`
	Transactions  Outcomes     `json:"transactions"`
	Notifications Outcomes     `json:"notifications"` // published in these transactions
	Sinks         []SinkReport `json:"sinks"`
}

// Outcomes are how the shop's transactions ended.
type Outcomes struct {
	Committed  int `json:"committed"`
	RolledBack int `json:"rolled_back"`
	// PerSecond is the rate of commits while the shop was open.
	PerSecond float64 `json:"per_second"`
}

// SinkReport is what one receiver got.
type SinkReport struct {
	Sink string `json:"sink"`
	// Counted is where the deliveries are counted.
	Counted string `json:"counted"`
	// Expected counts the committed notifications with a route to the sink.
	Expected int `json:"expected"`
	// Delivered counts those that arrived.
	Delivered int `json:"delivered"`
	// Repeats counts repeated arrivals. Delivery is at least once, so they are not a failure.
	Repeats int `json:"repeats"`
	// Refused counts the attempts that the receiver refused.
	Refused int     `json:"refused"`
	Latency Latency `json:"latency"`

	// Missing has notifications that were committed and did not arrive.
	Missing Findings `json:"missing"`
	// Ghosts has notifications that should not have arrived: they were rolled back, belong to another
	// sink, or were never published.
	Ghosts Findings `json:"ghosts"`
	// Misordered has notifications that arrived after a later one of their key.
	Misordered Findings `json:"misordered"`
}

// Latency is the time from the commit to the arrival, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// Findings are wrong, missing or misordered deliveries.
type Findings struct {
	Count int `json:"count"`
	// First has a few of them.
	First []Finding `json:"first,omitempty"`
}

// Finding is one of the Findings.
type Finding struct {
	ID   string `json:"id"`
	What string `json:"what"`
}

// maxFirst is how many findings of each sort the report names.
const maxFirst = 5

func (f *Findings) add(id, format string, args ...any) {
	f.Count++
	if len(f.First) < maxFirst {
		f.First = append(f.First, Finding{ID: id, What: fmt.Sprintf(format, args...)})
	}
}

// newReport compares what the receivers got with the ledger.
func newReport(l *ledger, receivers map[string]*arrivals, open time.Duration) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{
		OK: true,
		Transactions: Outcomes{
			Committed: l.transactions.committed, RolledBack: l.transactions.rolledBack,
			PerSecond: perSecond(l.transactions.committed, open),
		},
		Notifications: Outcomes{
			Committed: len(l.committed), RolledBack: len(l.rolledBack),
			PerSecond: perSecond(len(l.committed), open),
		},
	}
	for _, sink := range slices.Sorted(maps.Keys(receivers)) {
		compared := compare(sink, l, receivers[sink])
		compared.Counted = destinations[sink].counted
		r.Sinks = append(r.Sinks, compared)
		r.OK = r.OK && compared.ok()
	}
	return r
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func (s SinkReport) ok() bool {
	return s.Missing.Count == 0 && s.Ghosts.Count == 0 && s.Misordered.Count == 0
}

// compare compares what a sink's receiver got with the ledger.
func compare(sink string, l *ledger, got *arrivals) SinkReport {
	got.mu.Lock()
	defer got.mu.Unlock()
	r := SinkReport{Sink: sink, Expected: l.expected[sink], Repeats: got.repeats, Refused: got.refused}
	latency := durations.New()
	latest := make(map[string]entry) // by key: the entry with the highest number so far
	for _, a := range got.first {
		e, committed := l.committed[a.id]
		if !committed || !owes(sink, e) {
			r.Ghosts.add(a.id, "%s", whyGhost(l, a.id, e))
			continue
		}
		r.Delivered++
		// The notification may arrive before the commit has returned to the shop.
		latency.Record(a.at.Sub(e.Committed))
		if e.Key == "" {
			continue
		}
		if before, some := latest[e.Key]; some && before.Number > e.Number {
			r.Misordered.add(a.id, "%s %d of %s came after %s %d", e.Type, e.Number, e.Key, before.Type, before.Number)
			continue
		}
		latest[e.Key] = e
	}
	for _, e := range missing(sink, l, got) {
		r.Missing.add(e.ID, "%s", e.Type)
	}
	r.Latency = Latency{P50: latency.Percentile(50), P99: latency.Percentile(99)}
	return r
}

func whyGhost(l *ledger, id string, e entry) string {
	rolledBack, wasRolledBack := l.rolledBack[id]
	switch {
	case wasRolledBack:
		return rolledBack.Type + ", which was rolled back"
	case e.Type != "":
		return e.Type + ", which has no route to this sink"
	}
	return "was never published"
}

// missing lists what did not arrive, the oldest first.
func missing(sink string, l *ledger, got *arrivals) []entry {
	var list []entry
	for id, e := range l.committed {
		if owes(sink, e) && !got.seen[id] {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Or(a.Committed.Compare(b.Committed), cmp.Compare(a.ID, b.ID)) })
	return list
}

// conclude writes the report for programs or for people. It returns ErrFailed if the report is not OK.
func (r Report) conclude(asJSON bool, w io.Writer) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return err
		}
	} else {
		r.print(w)
	}
	if !r.OK {
		return ErrFailed
	}
	return nil
}

// print writes the report for people.
func (r Report) print(w io.Writer) {
	fmt.Fprintf(w, "\nOn SQLite, at %.0f transactions per second:\n\n", r.Transactions.PerSecond)
	r.outcomes(w).Render()
	fmt.Fprintln(w)
	r.deliveries(w).Render()
	fmt.Fprintln(w)
	for _, s := range r.Sinks {
		s.Missing.print(w, s.Sink, "missing")
		s.Ghosts.print(w, s.Sink, "that should not have arrived")
		s.Misordered.print(w, s.Sink, "out of order")
	}
	fmt.Fprintln(w, r.verdict())
	if r.OK {
		fmt.Fprint(w, next)
	}
}

// next is what to do after the demo.
const next = `
Next:
  waybill demo --observe 127.0.0.1:8090   the shop on a dashboard; in a clone: go run ./cmd/demo
  docs/getting-started.md                 a program of yours, from an empty folder to a delivery
  docs/other-languages.md                 the same for programs that are not in Go
  waybill bench                           how much your database and its sinks deliver
`

func (r Report) outcomes(w io.Writer) table.Writer {
	t := columns.New(w, 1, "", "transactions", "notifications")
	t.AppendRow(table.Row{"committed", r.Transactions.Committed, r.Notifications.Committed})
	t.AppendRow(table.Row{"rolled back", r.Transactions.RolledBack, r.Notifications.RolledBack})
	return t
}

func (r Report) deliveries(w io.Writer) table.Writer {
	t := columns.New(w, 2, "sink", "counted", "expected", "delivered", "repeats", "refused", "p50 ms", "p99 ms")
	for _, s := range r.Sinks {
		t.AppendRow(table.Row{s.Sink, s.Counted, s.Expected, s.Delivered, s.Repeats, s.Refused,
			fmt.Sprintf("%.1f", s.Latency.P50), fmt.Sprintf("%.1f", s.Latency.P99)})
	}
	return t
}

func (r Report) verdict() string {
	switch {
	case !r.OK:
		return "FAILED: what the receivers got is not what the shop committed."
	case r.Notifications.Committed == 0:
		return "Nothing was committed, and nothing arrived."
	}
	return "OK: every committed notification reached each of its sinks, and each key kept\n" +
		"its order. Nothing that was rolled back reached any."
}

func (f Findings) print(w io.Writer, sink, what string) {
	if f.Count == 0 {
		return
	}
	fmt.Fprintf(w, "%s: %d %s:\n", sink, f.Count, what)
	for _, one := range f.First {
		fmt.Fprintf(w, "  %s %s\n", one.ID, one.What)
	}
	if more := f.Count - len(f.First); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}
