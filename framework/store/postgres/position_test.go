package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/store"
)

// cluster models PostgreSQL's guarantees for transactions and sequences: ids are in order, snapshots end
// after the latest ended transaction, and offsets are taken at any time after the id.
type cluster struct {
	nextID   xid
	ended    xid // the highest that ended
	running  map[xid][]int64
	sequence int64
	rows     map[int64]xid // committed, by offset: the transaction id in the row
	history  history
}

// restore simulates a restore into another cluster: the rows and the sequence stay, running transactions
// end, and ids come from the new cluster.
func (c *cluster) restore(nextID xid) {
	c.nextID, c.ended = nextID, nextID-1
	clear(c.running)
	c.history.System += "'"
}

// extent returns the result of a restore scan, in a log that was restored with its sequence.
func (c *cluster) extent(p *probe) extent {
	var e extent
	for offset, id := range c.rows {
		if !p.snapshot.ended(id) {
			e.restored = max(e.restored, offset)
		}
	}
	return e
}

func (c *cluster) snapshot() snapshot {
	s := snapshot{xmin: c.ended + 1, xmax: c.ended + 1}
	for id := range c.running {
		if id < s.xmax {
			s.running = append(s.running, id)
			s.xmin = min(s.xmin, id)
		}
	}
	slices.Sort(s.running)
	ids := make([]string, len(s.running))
	for i, id := range s.running {
		ids[i] = id.String()
	}
	s.text = fmt.Sprintf("%d:%d:%s", s.xmin, s.xmax, strings.Join(ids, ","))
	return s
}

func (c *cluster) end(id xid, commit bool) {
	if commit {
		for _, offset := range c.running[id] {
			c.rows[offset] = id
		}
	}
	delete(c.running, id)
	c.ended = max(c.ended, id)
}

// TestDeltasCoverEachCommittedRowOnce checks the arithmetic of bases, bounds and floors with random
// histories. They include restores into other clusters, after which each row is read exactly once more.
// Each step also checks the rule of retention.
func TestDeltasCoverEachCommittedRowOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{nextID: 3, ended: 2, running: make(map[xid][]int64), rows: make(map[int64]xid)}
		c.history = history{System: "cluster", Sequence: 1}
		at := position{base: &origin}
		var newest watermark
		var lastSeen sight
		found := make(map[int64]int)

		// kept checks the rule of retention: if the position does not conflict with the log, every row that
		// counts as settled has been read.
		kept := func(t *rapid.T) {
			now := &probe{snapshot: c.snapshot(), last: c.sequence, history: c.history}
			if at.conflict(now, at.goal().Last) != "" {
				return
			}
			for offset, id := range c.rows {
				if found[offset] == 0 {
					require.Greater(t, offset, at.settled(), "offset %d of %d is still to be found, and %+v", offset, id, at)
					require.False(t, at.settles(offset, id), "offset %d of %d is still to be found, and %+v", offset, id, at)
				}
			}
			for id, offsets := range c.running {
				for _, offset := range offsets {
					require.Greater(t, offset, at.settled(), "offset %d of %d, which is running, and %+v", offset, id, at)
				}
			}
		}
		// read reads the rows of a delta, all of them or up to an offset.
		read := func(upTo func(d *delta, from int64) int64) {
			p := &probe{snapshot: c.snapshot(), last: c.sequence, history: c.history}
			if newest.holds(p) {
				p.watermark = newest
			}
			lastSeen = sight{last: p.last, history: p.history}
			r := &reader{pos: at}
			if reason := r.pos.conflict(p, r.durable); reason != "" {
				require.Contains(t, reason, "restored")
				require.NotEqual(t, at.history, c.history, "nothing else conflicts: %s", reason)
				d := rebase(p, c.extent(p), at.goal().Last)
				r.pos = position{delta: &d}
			}
			if r.pos.isNew() { // a new position looks for restored rows by itself
				d := rebase(p, c.extent(p), 0)
				r.pos = position{delta: &d}
			}
			r.pos.history = c.history
			if r.pos.delta != nil || r.begin(p) {
				d := r.pos.delta
				last := upTo(d, r.pos.offset)
				late, _ := d.From.late(&d.Until.Snapshot, d.Last)
				for offset, id := range c.rows {
					fresh := id >= d.From.Snapshot.xmax && (len(late) == 0 || offset > d.From.Bound)
					isLate := slices.Contains(late, id)
					visible := offset <= d.Restored || d.Until.Snapshot.ended(id)
					if offset > r.pos.offset && offset <= last && (fresh || isLate) && visible {
						found[offset]++
					}
				}
				at = position{history: c.history, base: &d.Until}
				if last < d.Last {
					at = position{history: c.history, delta: d, offset: last}
				}
			} else {
				at = r.pos
			}
		}
		all := func(d *delta, _ int64) int64 { return d.Last }
		anyRunning := func(t *rapid.T) xid {
			ids := make([]xid, 0, len(c.running))
			for id := range c.running {
				ids = append(ids, id)
			}
			if len(ids) == 0 {
				t.Skip("nothing runs")
			}
			slices.Sort(ids)
			return rapid.SampledFrom(ids).Draw(t, "transaction")
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin":  func(*rapid.T) { c.running[c.nextID] = nil; c.nextID++ },
			"insert": func(t *rapid.T) { id := anyRunning(t); c.sequence++; c.running[id] = append(c.running[id], c.sequence) },
			"commit": func(t *rapid.T) { c.end(anyRunning(t), true) },
			"abort":  func(t *rapid.T) { c.end(anyRunning(t), false) },
			"read":   func(*rapid.T) { read(all) },
			"read a part": func(t *rapid.T) {
				read(func(d *delta, from int64) int64 { return rapid.Int64Range(min(from, d.Last), d.Last).Draw(t, "up to") })
			},
			"checkpoint": func(*rapid.T) {
				id := c.nextID
				c.nextID++
				c.end(id, true)
				newest = watermark{id: id, bound: lastSeen.last, history: lastSeen.history}
			},
			"restart": func(t *rapid.T) { // only the cursor stays
				raw, err := json.Marshal(at)
				require.NoError(t, err)
				at, err = parsePosition(raw)
				require.NoError(t, err)
				newest, lastSeen = watermark{}, sight{}
			},
			"restore": func(t *rapid.T) {
				c.restore(xid(rapid.Uint64Range(3, uint64(c.nextID)+5).Draw(t, "next id")))
				clear(found) // everything comes again
			},
			"": func(t *rapid.T) {
				for offset, times := range found {
					require.Equal(t, 1, times, "times that offset %d was found", offset)
				}
				kept(t)
			},
		})
		for id := range c.running {
			c.end(id, true)
		}
		read(all) // the rest of a delta
		read(all)
		for offset, id := range c.rows {
			require.Equal(t, 1, found[offset], "times that offset %d of transaction %d was found", offset, id)
		}
	})
}

func TestStoredPositionsAreReadBack(t *testing.T) {
	t.Parallel()
	s, err := parseSnapshot("100:120:100,105,119")
	require.NoError(t, err)
	from := base{Snapshot: s, Bound: 7, Floors: map[xid]int64{100: 1, 105: 3, 119: 7}}
	until := from
	until.Bound = 99
	from.Last, until.Reach = 9, 300
	log := history{System: "7710239711726659716", Sequence: 16402}
	for _, p := range []position{
		{base: &from},
		{history: log, base: &from},
		{history: log, delta: &delta{From: from, Until: until, Last: 200, Restored: 150}, offset: 42},
	} {
		raw, err := p.MarshalJSON()
		require.NoError(t, err)
		again, err := parsePosition(raw)
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add(`{"at":{"snapshot":"1:1:","bound":0}}`)
	f.Add(`{"history":{"system":"7710239711726659716","sequence":16402},"at":{"snapshot":"1:1:","bound":0,"last":3,"reach":4}}`)
	f.Add(`{"delta":{"from":{"snapshot":"1:5:2,3","bound":1,"floors":{"2":0}},"until":{"snapshot":"7:7:","bound":3},"last":9},"offset":4}`)
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parsePosition([]byte(raw))
		if err != nil {
			require.ErrorIs(t, err, store.ErrPosition)
			return
		}
		if len(raw) == 0 {
			return
		}
		_, err = p.MarshalJSON()
		require.NoError(t, err)
	})
}

func TestSnapshotsKnowWhichTransactionsHadEnded(t *testing.T) {
	t.Parallel()
	s, err := parseSnapshot("10:15:10,12")
	require.NoError(t, err)
	for id, ended := range map[xid]bool{9: true, 10: false, 11: true, 12: false, 14: true, 15: false, 99: false} {
		require.Equal(t, ended, s.ended(id), "transaction %d", id)
	}
	for text, later := range map[string]bool{
		"10:15:10,12":    true, // itself
		"10:15:10":       true,
		"10:20:10,12,17": true,
		"10:15:10,11,12": false, // 11 had ended
		"10:14:10,12":    false,
	} {
		other, err := parseSnapshot(text)
		require.NoError(t, err)
		require.Equal(t, later, other.includes(&s), text)
	}
	for _, broken := range []string{"", "1:2", "a:2:", "1:b:", "1:2:x", "1:2:3:4"} {
		_, err := parseSnapshot(broken)
		require.Error(t, err, broken)
	}
}

// A crash undoes ids, and another log has other offsets.
func TestAWatermarkHoldsInOneLogAndOneLifeOfTheServer(t *testing.T) {
	t.Parallel()
	at, err := parseSnapshot("5:9:")
	require.NoError(t, err)
	p := &probe{snapshot: at, last: 10, history: history{Log: 1}, server: "a life"}
	holds := func(change func(w *watermark)) bool {
		w := watermark{id: 8, bound: 10, history: p.history, server: p.server}
		change(&w)
		return w.holds(p)
	}
	require.True(t, holds(func(*watermark) {}))
	require.False(t, holds(func(w *watermark) { w.server = "another life" }))
	require.False(t, holds(func(w *watermark) { w.history.Log++ }))
	require.False(t, holds(func(w *watermark) { w.id++ }), "it has not ended")
	require.False(t, holds(func(w *watermark) { w.bound++ }), "the sequence is below its bound")
}
