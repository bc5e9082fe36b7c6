package crashtest

import (
	"encoding/json"
	"hash/crc32"
	"maps"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// limits are for the histories below: with a lease of 2 s and a checkpoint of 1 s, a kill may repeat
// deliveries of the last 1 s.
var limits = Config{Threshold: 1, Lease: 2 * time.Second, Checkpoint: time.Second}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// sound returns a history without violations: two notifications of one key, one of another, one without a
// key, one that was rolled back, and one whose publisher was killed after its commit.
func sound() history {
	of := func(key string, o outcome) publication { return publication{key, &o} }
	return history{
		published: map[string]publication{
			"a1": of("a", committed), "a2": of("a", committed), "b1": of("b", committed), "free": of("", committed),
			"never": of("a", rolledBack), "maybe": of("b", begun), "lost answer": of("b", unknown),
		},
		log: []row{{"a1", "a", 1}, {"b1", "b", 1}, {"a2", "a", 2}, {"free", "", 0}, {"maybe", "b", 2}},
		deliveries: []delivery{
			{"a1", "a", 1, 0, at(10)}, {"a2", "a", 2, 0, at(11)}, {"b1", "b", 1, 0, at(12)}, {"maybe", "b", 2, 0, at(13)}, {"free", "", 0, 0, at(14)},
		},
		began: at(8),
	}
}

func kill(began, ended float64) Fault {
	return Fault{Kind: KillForwarder, began: at(began), ended: at(ended)}
}

// again adds a delivery and faults to a history.
func again(d delivery, faults ...Fault) func(h *history) {
	return func(h *history) { h.deliveries, h.faults = append(h.deliveries, d), faults }
}

func TestTheReportSaysWhenTheLongestGapEnded(t *testing.T) {
	t.Parallel()
	past := sound() // a delivery each second, from 10 s to 14 s
	past.deliveries = append(past.deliveries, delivery{"late", "", 0, 0, at(17.5)}, delivery{"last", "", 0, 0, at(19)})
	var r Report
	r.check(past, limits, "")
	require.Equal(t, 3500*time.Millisecond, r.LongestGap)
	require.Equal(t, 9500*time.Millisecond, r.GapEnded, "on the clock of the faults")
}

func TestARepeatSaysHowOftenItsNotificationIsUpstream(t *testing.T) {
	t.Parallel()
	past := sound()
	past.upstream = map[string]int{"a1": 2}
	past.deliveries = append(past.deliveries, delivery{"a1", "a", 1, 0, at(15)}, delivery{"a1", "a", 1, 0, at(16)})
	found := past.judge(limits)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Detail, "number 1 of its key, 2 times upstream, delivered by")
}

func TestTheCheckerFindsEachBrokenGuarantee(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(h *history)
		broken Broken // "": none
		id     string
	}{
		"no guarantee is broken": {change: func(*history) {}},
		"a committed notification is not delivered": {
			func(h *history) { h.deliveries = h.deliveries[:4] }, Lost, "free"},
		"a commit that the database forgot is not the forwarder's loss": {
			func(h *history) { h.log, h.deliveries = h.log[1:], h.deliveries[1:] }, Forgotten, "a1"},
		"a commit of a killed publisher is not delivered": {
			func(h *history) { h.deliveries = append(h.deliveries[:3:3], h.deliveries[4]) }, Lost, "maybe"},
		"a commit without an answer was rolled back, but is delivered": {
			again(delivery{"lost answer", "b", 3, 0, at(20)}), Phantom, "lost answer"},
		"a rolled back notification is delivered": {
			again(delivery{"never", "a", 3, 0, at(20)}), Phantom, "never"},
		"an unpublished notification is delivered": {
			again(delivery{"who", "a", 3, 0, at(20)}), Phantom, "who"},
		"the second of a key is delivered before the first": {
			func(h *history) {
				d := h.deliveries
				d[0], d[1] = delivery{"a2", "a", 2, 0, at(10)}, delivery{"a1", "a", 1, 0, at(11)}
			}, Disordered, "a1"},
		"a repeat behind a later one of its key is in order": {
			again(delivery{"a1", "a", 1, 0, at(20)}, kill(10.5, 10.6)), "", ""},
		"notifications without a key have no order": {
			change: func(h *history) {
				h.log = append(h.log, row{"free too", "", 0})
				h.deliveries = append(h.deliveries, delivery{"free too", "", 0, 0, at(20)})
			}},
		"a repeat of a notification that is upstream twice": {
			change: func(h *history) {
				h.upstream, h.deliveries = map[string]int{"a1": 2}, append(h.deliveries, delivery{"a1", "a", 1, 0, at(15)})
			}},
		"more repeats than upstream has": {
			func(h *history) {
				again := delivery{"a1", "a", 1, 0, at(15)}
				h.upstream, h.deliveries = map[string]int{"a1": 2, "a2": 9}, append(h.deliveries, again, again)
			}, Repeated, "a1"},
		"a repeat without a fault": {
			again(delivery{"a1", "a", 1, 0, at(20)}), Repeated, "a1"},
		"a repeat of a delivery long before the fault": {
			again(delivery{"a1", "a", 1, 0, at(20)}, kill(11.5, 12)), Repeated, "a1"},
		"a repeat of a delivery after the fault": {
			again(delivery{"free", "", 0, 0, at(20)}, kill(13.5, 13.9)), Repeated, "free"},
		"a repeat of a delivery by a forwarder without its database": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: CutDatabase, began: at(13), ended: at(18)}), "", ""},
		"a repeat of a delivery long after a forwarder lost its database": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: CutDatabase, began: at(12), ended: at(18)}), Repeated, "free"},
		"a repeat of a delivery while the server was copied to its standby": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: FailOver, began: at(11), ended: at(15)}), "", ""},
		"a repeat of a delivery while the machine stood still": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: Stall, began: at(13), ended: at(15)}), "", ""},
		"a repeat after a graceful stop": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: TerminateForwarder, began: at(13.9), ended: at(14.1)}), Repeated, "free"},
		"a repeat of a delivery by another forwarder than the killed one": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: KillForwarder, Victim: 1, began: at(14.1), ended: at(14.2)}), Repeated, "free"},
		"a repeat of a delivery while an action waited for a paused forwarder": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: PauseForwarder, Victim: 1, began: at(11), ended: at(15)}, Fault{Kind: PersonActs, began: at(12), ended: at(13)}), "", ""},
		"a repeat of a delivery while another forwarder was paused": {
			again(delivery{"free", "", 0, 0, at(20)}, Fault{Kind: PauseForwarder, Victim: 1, began: at(11), ended: at(15)}, Fault{Kind: PersonActs, began: at(16), ended: at(17)}), Repeated, "free"},
		"a paused forwarder ends a delivery that it had in flight": {
			again(delivery{"free", "", 0, 1, at(15.1)}, Fault{Kind: PauseForwarder, Victim: 1, began: at(11), ended: at(15)}), "", ""},
		"a paused forwarder makes more deliveries than it had in flight": {
			func(h *history) {
				h.deliveries = append(h.deliveries, delivery{"maybe", "b", 2, 1, at(15.1)}, delivery{"free", "", 0, 1, at(15.1)})
				h.faults = []Fault{{Kind: PauseForwarder, Victim: 1, began: at(11), ended: at(15)}}
			}, Excessive, ""},
		"a paused forwarder makes one delivery more, which people asked for": {
			func(h *history) {
				h.replayed = 1
				h.deliveries = append(h.deliveries, delivery{"maybe", "b", 2, 1, at(15.1)}, delivery{"free", "", 0, 1, at(15.1)})
				h.faults = []Fault{{Kind: PauseForwarder, Victim: 1, began: at(11), ended: at(15)}}
			}, "", ""},
		"people asked for one delivery, and another one has no fault": {
			func(h *history) {
				h.replayed = 1
				h.deliveries = append(h.deliveries, delivery{"maybe", "b", 2, 1, at(15.1)}, delivery{"free", "", 0, 1, at(15.1)}, delivery{"a1", "a", 1, 0, at(20)})
				h.faults = []Fault{{Kind: PauseForwarder, Victim: 1, began: at(12.5), ended: at(15)}}
			}, Excessive, ""},
		"people asked for one delivery, and two faults have one too many": {
			func(h *history) {
				h.replayed = 1
				h.deliveries = append(h.deliveries, delivery{"a1", "a", 1, 1, at(15.1)}, delivery{"a2", "a", 2, 1, at(15.1)},
					delivery{"maybe", "b", 2, 1, at(15.1)}, delivery{"free", "", 0, 1, at(15.1)})
				h.faults = []Fault{{Kind: PauseForwarder, Victim: 1, began: at(10), ended: at(10.5)}, {Kind: PauseForwarder, Victim: 1, began: at(14), ended: at(15)}}
			}, Excessive, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sound()
			c.change(&h)
			found := h.judge(limits)
			if c.broken == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.broken, found[0].Broken)
			require.Equal(t, c.id, found[0].ID)
		})
	}
}

func TestAViolationHasTheHistoryOfItsNotification(t *testing.T) {
	t.Parallel()
	h := sound()
	h.deliveries = append(h.deliveries, delivery{"a1", "a", 1, 1, at(20)})
	found := h.judge(limits)
	require.Len(t, found, 1)
	require.Equal(t, `repeated: "a1": key "a", its publisher says committed, number 1 of its key`+
		`, delivered by forwarder 0 as number 1 after 2s, delivered by forwarder 1 as number 6 after 12s`, found[0].String())
}

func TestRepeatsAreCountedForTheirFaults(t *testing.T) {
	t.Parallel()
	h := sound()
	h.deliveries = append(h.deliveries, delivery{"a1", "a", 1, 1, at(20)}, delivery{"b1", "b", 1, 1, at(20)}, delivery{"free", "", 0, 1, at(20)})
	h.faults = []Fault{kill(10.5, 10.6), kill(14.1, 14.2)}
	require.Len(t, h.judge(limits), 1, "no fault explains the repeat of b1")
	require.Equal(t, 1, h.faults[0].Repeats)
	require.Equal(t, 1+1, h.faults[0].Bound, "a1 and the delivery in flight")
	require.Equal(t, 1, h.faults[1].Repeats)
}

func TestAMachineThatStandsStillIsNoticed(t *testing.T) {
	t.Parallel()
	stalls := watchMachine(time.Now(), -time.Second) // each look is later than that
	time.Sleep(10 * time.Millisecond)
	found := stalls()
	require.NotEmpty(t, found)
	require.Equal(t, Stall, found[0].Kind)
	require.NotZero(t, found[0].Ended)
	require.Equal(t, found, stalls())
}

func TestASeedGivesTheSameFaults(t *testing.T) {
	t.Parallel()
	c := Config{Seed: 17, Faults: kinds, Lease: time.Second, Gap: time.Second, Forwarders: 2, Steps: []string{"lease"}, Acts: []Act{{}}}
	one, other := newPlan(c, 0), newPlan(c, 0)
	seen := make(map[Kind]bool)
	for range kinds {
		s := one.next()
		require.Equal(t, s, other.next())
		seen[s.kind] = true
	}
	require.Len(t, seen, len(kinds), "each kind comes once in a round")
	c.Seed++
	require.NotEqual(t, newPlan(c, 0).next(), one.next())
}

func TestAnUnusableConfigIsRefused(t *testing.T) {
	t.Parallel()
	forward := func(string, string) *exec.Cmd { return nil }
	for name, c := range map[string]Config{
		"no forwarder":   {},
		"no threshold":   {Forwarder: forward, Threshold: -1},
		"negative lease": {Forwarder: forward, Lease: -1},
		"unknown fault":  {Forwarder: forward, Faults: []Kind{"meteor"}},
		"no such server": {Forwarder: forward, Database: "SQLite"},
	} {
		_, err := Run(t.Context(), c)
		require.ErrorIs(t, err, ErrConfig, name)
	}
}

func TestARunEndsIfAForwarderEndsUnexpectedly(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Forwarder: func(string, string) *exec.Cmd { return exec.Command("false") }})
	require.ErrorIs(t, err, ErrEnded)
	require.ErrorContains(t, err, "exit status 1")
}

func TestWhatWasNotCountedIsNotIdle(t *testing.T) {
	t.Parallel()
	require.False(t, idle(store.Status{}), "no forwarder has begun")
	require.True(t, idle(store.Status{Cursors: []store.CursorStatus{{}}}))
	require.False(t, idle(store.Status{Cursors: []store.CursorStatus{{Pending: 1}}}))
	require.False(t, idle(store.Status{Cursors: []store.CursorStatus{{Estimated: true}}}))
}

func TestTheSinkNoticesWhatWasChangedOnTheWay(t *testing.T) {
	t.Parallel()
	for _, filler := range oddFillers {
		written := payload{Key: " k\n", N: 1, ID: "i%", Type: "t", At: oddTimes[0][1], Filler: json.RawMessage(filler), Sum: crc32.ChecksumIEEE([]byte(filler))}
		var p payload
		require.NoError(t, json.Unmarshal([]byte(written.String()), &p))
		whole := http.Header{headerID: {"i%25"}, headerKey: {"%20k%0a"}, headerType: {"t"}, headerTime: {p.At}}
		require.Empty(t, p.changed(whole))
		for name := range whole {
			for _, other := range []string{"other", "%"} {
				changed := maps.Clone(whole)
				changed[name] = []string{other}
				require.Contains(t, p.changed(changed), name)
			}
		}
		p.Filler = append(p.Filler, ' ')
		require.NotEmpty(t, p.changed(whole))
	}
}
