package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetched is a position, and what was fetched after it. Offsets have gaps: control records, records of
// aborted transactions and what compaction removed. Any number of them can be anywhere, also before the
// end up to which is read. So a place is never computed from the offset of the next record, only from what
// the answers of the leader cover.
type fetched struct {
	at position
	// kept has all committed records from at up to read.
	kept []*kgo.Record
	read int64
	// epoch is that of the leader that sent the last answer: no offset before read has a later one.
	epoch int32
	size  int64 // of the last answer
}

// next passes the next record before end. It returns nil if none is known, and has then passed everything
// before end that is known to be no record.
func (f *fetched) next(end int64) *kgo.Record {
	if f.has(end) {
		r := f.kept[0]
		f.kept[0], f.kept = nil, f.kept[1:]
		f.at.next, f.at.epoch = r.Offset+1, r.LeaderEpoch
		return r
	}
	if passed := min(f.read, end); passed > f.at.next {
		f.at.next, f.at.epoch = passed, f.epoch
	}
	return nil
}

// has reports whether a record before end is kept.
func (f *fetched) has(end int64) bool { return len(f.kept) > 0 && f.kept[0].Offset < end }

// add appends an answer, which has all committed records from read up to a later offset.
func (f *fetched) add(records []*kgo.Record, read int64, epoch int32) {
	f.kept = append(f.kept, records...)
	f.read, f.epoch, f.size = read, epoch, sizeOf(records)
}

// drop forgets what is kept: it must be fetched again.
func (f *fetched) drop() { f.kept, f.read = nil, f.at.next }

// move goes to an offset whose previous record is not known.
func (f *fetched) move(offset int64) {
	f.at.next, f.at.epoch = offset, -1
	f.drop()
}
