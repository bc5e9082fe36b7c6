package demo

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// openLedger returns a ledger with four committed notifications and one that was rolled back. All have
// a route to the http sink, except stock.reserved.
func openLedger() *ledger {
	l := newLedger()
	at := time.Now()
	l.commit(at, []entry{{ID: "first", Type: orderPlaced, Key: "c-1", Number: 1}, {ID: "stock", Type: stockReserved}})
	l.commit(at.Add(time.Second), []entry{{ID: "second", Type: orderPlaced, Key: "c-1", Number: 2}})
	l.commit(at.Add(2*time.Second), []entry{{ID: "other", Type: orderPlaced, Key: "c-2", Number: 1}})
	l.rollBack([]entry{{ID: "undone", Type: orderPlaced, Key: "c-1", Number: 3}})
	return l
}

func TestTheReportFindsMissingUnexpectedAndMisorderedNotifications(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		came                        []string
		missing, ghosts, misordered []Finding
		repeats                     int
	}{
		"everything arrived":  {came: []string{"first", "other", "second"}},
		"a repeat is allowed": {came: []string{"first", "second", "first", "other"}, repeats: 1},
		"lost":                {came: []string{"first", "other"}, missing: []Finding{{"second", "order.placed"}}},
		"all lost":            {missing: []Finding{{"first", "order.placed"}, {"second", "order.placed"}, {"other", "order.placed"}}},
		"rolled back": {came: []string{"first", "undone", "second", "other"},
			ghosts: []Finding{{"undone", "order.placed, which was rolled back"}}},
		"never published": {came: []string{"first", "second", "other", "stranger"},
			ghosts: []Finding{{"stranger", "was never published"}}},
		"delivered to another sink": {came: []string{"stock", "first", "second", "other"},
			ghosts: []Finding{{"stock", "stock.reserved, which has no route to this sink"}}},
		"an extra delivery does not make up for a lost one": {came: []string{"first", "undone", "other"},
			missing: []Finding{{"second", "order.placed"}}, ghosts: []Finding{{"undone", "order.placed, which was rolled back"}}},
		"reordered": {came: []string{"second", "other", "first"},
			misordered: []Finding{{"first", "order.placed 1 of c-1 came after order.placed 2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newArrivals()
			for _, id := range test.came {
				got.add(id)
			}
			report := newReport(openLedger(), map[string]*arrivals{httpSink: got}, time.Second)
			http := report.Sinks[0]
			require.Equal(t, test.missing, http.Missing.First)
			require.Equal(t, test.ghosts, http.Ghosts.First)
			require.Equal(t, test.misordered, http.Misordered.First)
			require.Equal(t, test.repeats, http.Repeats)
			require.Equal(t, 3, http.Expected)
			require.Equal(t, 3-len(test.missing), http.Delivered)

			fine := len(test.missing)+len(test.ghosts)+len(test.misordered) == 0
			require.Equal(t, fine, report.OK)
			var printed bytes.Buffer
			report.print(&printed)
			for _, findings := range [][]Finding{test.missing, test.ghosts, test.misordered} {
				for _, f := range findings {
					require.Contains(t, printed.String(), f.ID+" "+f.What)
				}
			}
			require.Equal(t, fine, bytes.Contains(printed.Bytes(), []byte("\nOK: ")))
			require.Equal(t, !fine, bytes.Contains(printed.Bytes(), []byte("\nFAILED: ")))
		})
	}
}

func TestTheReportNamesOnlyTheFirstFindings(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for i := range 12 {
		l.commit(time.Now(), []entry{{ID: fmt.Sprintf("id-%02d", i), Type: orderPlaced}})
	}
	report := newReport(l, map[string]*arrivals{httpSink: newArrivals()}, time.Second)
	require.Equal(t, 12, report.Sinks[0].Missing.Count)
	require.Len(t, report.Sinks[0].Missing.First, maxFirst)
	var printed bytes.Buffer
	report.print(&printed)
	require.Contains(t, printed.String(), "http: 12 missing:\n  id-00 order.placed\n")
	require.Contains(t, printed.String(), "  and 7 more\n")
}

func TestLatencyIsFromTheCommitToTheFirstArrival(t *testing.T) {
	t.Parallel()
	l, got := newLedger(), newArrivals()
	at := time.Now()
	for i := range 100 {
		id := fmt.Sprint(i)
		l.commit(at, []entry{{ID: id, Type: orderPlaced}})
		got.first = append(got.first, arrival{id: id, at: at.Add(time.Duration(i+1) * time.Millisecond)})
		got.seen[id] = true
	}
	latency := newReport(l, map[string]*arrivals{httpSink: got}, time.Second).Sinks[0].Latency
	require.InDelta(t, 50, latency.P50, 0.5)
	require.InDelta(t, 99, latency.P99, 0.5)
}
