package mysql

import (
	"encoding/json"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// someSpans returns a random set of offsets up to 60, and the same set as a map.
func someSpans(r *rand.Rand) (s spans.Set, has map[int64]bool) {
	has = make(map[int64]bool)
	for offset := int64(1); offset <= 60; offset++ {
		if r.Intn(3) == 0 {
			has[offset] = true
			s = s.Add(offset, offset)
		}
	}
	return s, has
}

func contains(s spans.Set, offset int64) bool { return store.ContainsOffset(s, offset) }

func TestSpansAreSetsOfOffsets(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(1))
	for range 500 {
		a, inA := someSpans(r)
		b, inB := someSpans(r)
		cut := int64(r.Intn(62))
		for offset := int64(1); offset <= 60; offset++ {
			require.Equal(t, inA[offset], contains(a, offset))
			require.Equal(t, inA[offset] && !inB[offset], contains(a.Minus(b), offset))
			require.Equal(t, inA[offset] && inB[offset], contains(a.And(b), offset))
			require.Equal(t, inA[offset] || inB[offset], contains(a.Or(b), offset))
			require.Equal(t, inA[offset] && offset <= cut, contains(a.UpTo(cut), offset))
			require.Equal(t, inA[offset] && offset > cut, contains(a.Behind(cut), offset), "%v behind %d", a, cut)
		}
	}
}

func someSnapshot(r *rand.Rand) snapshot {
	s, _ := someSpans(r)
	top := int64(r.Intn(61))
	return snapshot{top, s.UpTo(top)}
}

func (s snapshot) decides(offset int64) bool { return offset <= s.top && !contains(s.holes, offset) }

func TestJoinReturnsTheUnionOfSnapshots(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(2))
	for range 500 {
		a, b := someSnapshot(r), someSnapshot(r)
		both := join(a, b)
		for offset := int64(1); offset <= 60; offset++ {
			require.Equal(t, a.decides(offset) || b.decides(offset), both.decides(offset))
			require.Equal(t, both.decides(offset) && !a.decides(offset), contains(delta(a, both), offset))
		}
	}
}

func TestAPositionIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(3))
	for range 500 {
		from := someSnapshot(r)
		until := join(from, someSnapshot(r))
		for _, p := range []position{{from: from}, {from: from, until: &until, offset: int64(r.Intn(61))}} {
			raw, err := json.Marshal(p)
			require.NoError(t, err)
			read, err := parsePosition(raw)
			require.NoError(t, err)
			again, err := json.Marshal(read)
			require.NoError(t, err)
			require.Equal(t, string(raw), string(again))
			for offset := int64(1); offset <= p.goal().top; offset++ {
				settled := p.from.decides(offset) || p.until != nil && until.decides(offset) && offset <= p.offset
				require.Equal(t, settled, !contains(p.unsettled(), offset), "%s: offset %d", raw, offset)
				if offset <= p.through() {
					require.True(t, settled, "%s: offset %d", raw, offset)
				}
			}
		}
	}
	for _, raw := range []string{
		`{"at":{"top":-1}}`, `{"at":{"top":3,"holes":"4"}}`, `{"at":{"top":3},"offset":2}`, `{"delta":{"from":{"top":1}}}`,
		`{"offset":17}`, `{"at":{"top":3},"delta":{"from":{"top":1},"until":{"top":2}}}`,
	} {
		_, err := parsePosition(json.RawMessage(raw))
		require.ErrorIs(t, err, store.ErrPosition, raw)
	}
}

func FuzzPosition(f *testing.F) {
	f.Add([]byte(`{"at":{"top":9,"holes":"3-5,7"}}`))
	f.Add([]byte(`{"delta":{"from":{"top":3,"holes":"2"},"until":{"top":9}},"offset":5}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parsePosition(raw)
		if err != nil {
			return
		}
		written, err := json.Marshal(p)
		require.NoError(t, err)
		_, err = parsePosition(written)
		require.NoError(t, err, "%s", written)
	})
}
