package store

import (
	"iter"

	"github.com/waybill-go/waybill/framework/notification"
)

// StatementBytes is how large a statement with many rows becomes, if the database could take more. A
// larger one saves nothing, and costs memory on both sides.
const StatementBytes = 8 << 20

// Limits is how large a statement of a database can be.
type Limits struct {
	// Parameters is how many parameters a statement can have.
	Parameters int
	// Bytes is how large the rows of a statement may be together, as Size counts. A statement of a
	// single row may be larger.
	Bytes int
	// Refs is how many rows a condition should name.
	Refs int
	// Row is how large a single row may be; 0 means no limit that matters.
	Row int
	// Setting is the setting of the server to which Row belongs.
	Setting string
}

// Size returns about how many bytes an envelope takes in a statement or in memory.
func Size(e *notification.Envelope) int {
	const fixed = 512 // times, numbers, and what is around them
	size := fixed + len(e.Payload) + len(e.Key) + len(e.ID) + len(e.Type)
	for name, value := range e.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// Chunks cuts rows into parts for one statement each: of at most so many rows, and of at most so many
// bytes unless a row alone is larger.
func Chunks[T any](rows []T, most, bytes int, size func(row *T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		first, total := 0, 0
		for i := range rows {
			next := size(&rows[i])
			if i > first && (i-first == most || total+next > bytes) {
				if !yield(rows[first:i:i]) {
					return
				}
				first, total = i, 0
			}
			total += next
		}
		if first < len(rows) {
			yield(rows[first:])
		}
	}
}
