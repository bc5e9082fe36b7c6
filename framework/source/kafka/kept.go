package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxKept limits, in bytes, how much of the brokers' answers all readers of a source keep: records that
// did not fit in a page. The forwarder limits the pages.
const maxKept = 64 << 20

// kept counts what all readers of a source keep.
type kept struct {
	most  int64
	bytes atomic.Int64
}

// share counts what one reader keeps. It is not part of the reader, so that it can be released after the
// reader is garbage.
type share struct {
	of    *kept
	bytes int64
}

// take adds a number of bytes if there is room, and reports whether there was.
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

// recordBytes is the approximate size of a record without its texts.
const recordBytes = 200

// sizeOf returns the size of an answer. Its records share memory, which stays in use while one of them is
// kept.
func sizeOf(records []*kgo.Record) (bytes int64) {
	for _, r := range records {
		bytes += int64(len(r.Key) + len(r.Value) + recordBytes)
		for _, h := range r.Headers {
			bytes += int64(len(h.Key) + len(h.Value))
		}
	}
	return bytes
}

// keep keeps the fetched records that did not fit in the page. If all readers together keep too much,
// it drops them, and the next page fetches them again.
func (r *reader) keep() {
	switch {
	case len(r.kept) == 0:
		r.share.giveBack()
	case r.share.bytes == 0 && !r.share.take(r.size):
		r.drop()
	}
}
