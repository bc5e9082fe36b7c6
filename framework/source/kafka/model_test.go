package kafka

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// history is a partition as its leader has it: batches with gaps between and inside them.
type history struct {
	batches []batch
	start   int64 // what retention has left
}

// batch has the offsets from first up to next, of which some have records that readers see. A control record,
// and a batch of an aborted transaction, have none.
type batch struct {
	first, next int64
	epoch       int32
	records     []int64
}

func randomHistory(r *rand.Rand) *history {
	h, at, epoch := new(history), int64(r.IntN(5)), int32(r.IntN(3))
	h.start = at
	for range 1 + r.IntN(25) {
		if r.IntN(5) == 0 {
			epoch += int32(1 + r.IntN(2)) // an election
		}
		b := batch{first: at, next: at + 1 + int64(r.IntN(5)), epoch: epoch}
		switch r.IntN(5) {
		case 0: // a control record
			b.next = b.first + 1
		case 1: // of an aborted transaction
		case 2: // compaction removes the whole batch, but never the last one
			at = b.next
			continue
		default:
			for offset := b.first; offset < b.next; offset++ {
				if r.IntN(6) > 0 { // or compaction has removed it
					b.records = append(b.records, offset)
				}
			}
		}
		h.batches, at = append(h.batches, b), b.next
	}
	if len(h.batches) == 0 {
		h.batches = append(h.batches, batch{first: at, next: at + 1, epoch: epoch, records: []int64{at}})
	}
	return h
}

func (h *history) end() int64   { return h.batches[len(h.batches)-1].next }
func (h *history) epoch() int32 { return h.batches[len(h.batches)-1].epoch }

// seen returns the offsets from one on that a reader must return.
func (h *history) seen(from int64) (offsets []int64) {
	for _, b := range h.batches {
		for _, offset := range b.records {
			if offset >= max(from, h.start) {
				offsets = append(offsets, offset)
			}
		}
	}
	return offsets
}

// fetch answers like a leader: whole batches from the one with an offset on, without the records before it.
func (h *history) fetch(from int64, most int) (records []*kgo.Record, next int64) {
	next = from
	for _, b := range h.batches {
		if b.next <= from || most == 0 {
			continue
		}
		for _, offset := range b.records {
			if offset >= from {
				records = append(records, &kgo.Record{Topic: "orders", Offset: offset, LeaderEpoch: b.epoch})
			}
		}
		next, most = b.next, most-1
	}
	return records, next
}

// endOf answers OffsetForLeaderEpoch: where an epoch ends.
func (h *history) endOf(epoch int32) int64 {
	for _, b := range h.batches {
		if b.epoch > epoch {
			return b.first
		}
	}
	return h.end()
}

// A reader walks through random histories, to ends anywhere in them, with pages of any size. Meanwhile
// retention removes records, what was kept is dropped, and other readers continue at its positions.
func TestModelAReaderReturnsEachRecordOnceAndAlwaysComesToTheEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		if !walk(t, seed) {
			require.FailNow(t, "the reader and the model differ", "seed %d", seed)
		}
	}
}

func walk(t *testing.T, seed uint64) bool {
	r := rand.New(rand.NewPCG(seed, 0))
	h := randomHistory(r)
	source := &Source{config: Config{Lost: LostSkip, Logger: slog.New(slog.DiscardHandler)}, kept: kept{most: int64(r.IntN(2000))}}
	open := func(at position) *reader {
		return &reader{source: source, filter: store.Filter{Types: notification.AllTypes}, fetched: fetched{at: at, read: at.next}, share: &share{of: &source.kept}}
	}
	at := position{name: "orders", next: h.start + int64(r.IntN(3)), epoch: -1}
	reading, end := open(at), at.next
	want := h.seen(at.next)
	var got []int64
	for end < h.end() {
		end += int64(r.IntN(int(h.end()-end) + 1))
		for steps := 0; ; steps++ {
			if r.IntN(20) == 0 { // retention
				h.start = max(h.start, h.batches[r.IntN(len(h.batches))].first)
			}
			before := reading.at
			p := reading.begin()
			err := errBeyond
			if end >= reading.at.next {
				err = reading.fill(p, end, 1+r.IntN(6), func() error {
					if reading.read < h.start {
						want = slices.DeleteFunc(want, func(offset int64) bool { return offset >= reading.read && offset < h.start })
						return reading.lost(h.start, "retention removed them")
					}
					records, next := h.fetch(reading.read, 1+r.IntN(4))
					reading.add(records, next, h.epoch())
					return nil
				})
			}
			reading.keep()
			for i := range p.Envelopes {
				got = append(got, p.Envelopes[i].Offset-engineOffset(0, 0))
				if !plausible(t, h, p.after[i]) {
					return false
				}
			}
			if err != nil || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || !plausible(t, h, reading.at) || reading.at.next < before.next {
				t.Logf("error %v, end %d, at %+v, got %v, want %v, history %+v", err, end, reading.at, got, want, h)
				return false
			}
			if reading.at.next >= end {
				break
			}
			if steps > 1000 {
				t.Logf("it never comes to the end %d, at %+v, kept %d, history %+v", end, reading.at, len(reading.kept), h)
				return false
			}
			if r.IntN(10) == 0 { // a restart, after the last delivery or the page
				source.kept.bytes.Store(0)
				reading = open(reading.at)
			}
		}
		end = max(end, reading.at.next)
	}
	if !slices.Equal(got, want) {
		t.Logf("got %v, want %v, history %+v", got, want, h)
		return false
	}
	return true
}

var errBeyond = errors.New("the end is before the position")

// plausible reports whether no check of the leader epoch finds a loss: the epoch of a position must not end
// before it, and must not be later than the leader's.
func plausible(t *testing.T, h *history, p position) bool {
	if p.epoch >= 0 && (h.endOf(p.epoch) < p.next || p.epoch > h.epoch()) {
		t.Logf("position %d of epoch %d, which ends at %d", p.next, p.epoch, h.endOf(p.epoch))
		return false
	}
	return true
}

// The client multiplies milliseconds by 10^6, and overflows.
func TestEveryTimestampFromTheYear1To9999IsRead(t *testing.T) {
	t.Parallel()
	read := func(ms int64) (time.Time, error) {
		return occurred(&kgo.Record{Timestamp: time.Unix(0, ms*1_000_000)})
	}
	r, first, last := rand.New(rand.NewPCG(1, 2)), notification.MinTime.UnixMilli(), notification.MaxTime.UnixMilli()
	for i := range 10_000 {
		ms := first + r.Int64N(last-first+1)
		switch i {
		case 0:
			ms = first
		case 1:
			ms = last
		case 2, 3, 4:
			ms = int64(i - 4) // around the epoch
		}
		at, err := read(ms)
		require.NoError(t, err)
		require.Equal(t, ms, at.UnixMilli())
	}
	for _, ms := range []int64{first - 1, last + 1, 1_767_225_600_000_000, math.MinInt64 / 1_000} {
		at, err := read(ms)
		require.Error(t, err)
		require.Equal(t, notification.ClampTime(at), at)
	}
}
