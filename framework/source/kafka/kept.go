package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxKept bounds what all readers of a source keep of the brokers' answers, in bytes: what a page had no room
// for. Pages are the forwarder's, which bounds them by itself.
const maxKept = 64 << 20

// kept is what all readers of a source keep.
type kept struct {
	most  int64
	bytes atomic.Int64
}

// share is what one reader keeps. It is not part of the reader, and so can be given back behind it.
type share struct {
	of    *kept
	bytes int64
}

// take reports whether there was room for so many bytes more.
func (s *share) take(bytes int64) bool {
	if s.of.bytes.Add(bytes) > s.of.most {
		s.of.bytes.Add(-bytes)
		return false
	}
	s.bytes += bytes
	return true
}

func (s *share) giveBack() {
	s.of.bytes.Add(-s.bytes)
	s.bytes = 0
}

// recordBytes is about what a record takes beside its texts.
const recordBytes = 200

// sizeOf is what an answer takes. Its records share memory, which is free once none of them is kept.
func sizeOf(records []*kgo.Record) (bytes int64) {
	for _, r := range records {
		bytes += int64(len(r.Key) + len(r.Value) + recordBytes)
		for _, h := range r.Headers {
			bytes += int64(len(h.Key) + len(h.Value))
		}
	}
	return bytes
}

// keep keeps the fetched records that the page had no room for. Where all readers keep too much they are
// given up, to be fetched again for the next page.
func (r *reader) keep() {
	switch {
	case len(r.fetched) == 0:
		r.share.giveBack()
	case r.share.bytes == 0 && !r.share.take(r.size):
		r.fetched, r.read = nil, r.at.next
	}
}
