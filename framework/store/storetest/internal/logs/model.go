package logs

import (
	"encoding/json"
	"testing"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// modelOfReading compares random histories with the simplest model of a log: a list of the
// committed rows. A history publishes and rolls back, reads pages of any size with old and new
// targets, and restarts from any position of any earlier page.
func modelOfReading(t *testing.T, o *kit.Outbox) {
	var base json.RawMessage // where the previous history ended
	rapid.Check(t, func(rt *rapid.T) {
		_, base = o.Read(t, base, kit.All, 1000)
		m := &model{o: o, t: t, base: base}
		m.filter = kit.All
		if rapid.Bool().Draw(rt, "filtered") {
			m.filter.Types = notification.TypeFilter{Names: []string{"a"}, Except: rapid.Bool().Draw(rt, "except")}
		}
		m.places = []place{{base, 0, 0}}
		m.targets = []bound{{o.Target(t), 0}}
		m.restart(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"publish": m.publish,
			"probe":   m.probe,
			"read":    m.read,
			"restart": m.restart,
		})
	})
}

type model struct {
	o      *kit.Outbox
	t      *testing.T
	base   json.RawMessage
	filter store.Filter

	log     []notification.Envelope // committed rows that pass the filter
	targets []bound                 // ascending
	places  []place                 // all positions so far

	reader store.Reader
	passed int // how many rows of the log the reader has passed
	reach  int // the largest length of its targets, including those before its restart
}

// bound is a target and the length of the log when it was probed.
type bound struct {
	target store.Target
	length int
}

// place is a position, the number of rows before it, and the largest length of the targets that led
// to it.
type place struct {
	position json.RawMessage
	length   int
	reach    int
}

func (m *model) publish(rt *rapid.T) {
	types := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 1, 4).Draw(rt, "types")
	envelopes := make([]notification.Envelope, len(types))
	for i, typ := range types {
		envelopes[i] = kit.Envelope(typ, "")
	}
	tx := m.o.Tx(m.t)
	require.NoError(rt, m.o.Append(m.t.Context(), tx, envelopes...))
	if rapid.IntRange(0, 3).Draw(rt, "outcome") == 0 {
		require.NoError(rt, tx.Rollback())
		return
	}
	require.NoError(rt, tx.Commit())
	for _, e := range envelopes {
		if m.filter.Types.All() || (e.Type == "a") != m.filter.Types.Except {
			m.log = append(m.log, e)
		}
	}
}

func (m *model) probe(*rapid.T) {
	m.targets = append(m.targets, bound{m.o.Target(m.t), len(m.log)})
}

func (m *model) read(rt *rapid.T) {
	b := rapid.SampledFrom(m.targets).Draw(rt, "target")
	limit := rapid.IntRange(1, 7).Draw(rt, "limit")
	page, err := m.reader.Next(m.t.Context(), b.target, limit)
	require.NoError(rt, err)
	require.Empty(rt, page.Rebased)
	require.LessOrEqual(rt, len(page.Envelopes), limit)

	passed := m.passed + len(page.Envelopes)
	m.reach = max(m.reach, b.length)
	if len(page.Envelopes) > 0 {
		require.LessOrEqual(rt, passed, m.reach, "no row is newer than the target")
		require.Equal(rt, kit.IDs(m.log[m.passed:passed]), kit.IDs(page.Envelopes))
	}
	if page.CaughtUp {
		require.GreaterOrEqual(rt, passed, b.length, "no row is left out")
	}
	for i := range page.Envelopes {
		m.places = append(m.places, place{kit.Marshal(rt, page.After(i)), m.passed + i + 1, m.reach})
	}
	m.places = append(m.places, place{kit.Marshal(rt, page.End), passed, m.reach})
	m.passed = passed
}

func (m *model) restart(rt *rapid.T) {
	p := rapid.SampledFrom(m.places).Draw(rt, "place")
	r, err := m.o.NewReader(p.position, m.filter)
	require.NoError(rt, err)
	m.reader, m.passed, m.reach = r, p.length, p.reach
}
