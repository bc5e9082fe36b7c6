package store

import (
	"context"
	"time"
)

// Census is a Store that can tell which types there are.
type Census interface {
	// Types counts the last rows of the log, at most so many, by type, in the order
	// of the types' names.
	Types(ctx context.Context, rows int) ([]TypeCount, error)
}

// TypeCount is how much of a type there is.
type TypeCount struct {
	Type string
	// Version is the highest.
	Version int
	Count   int64
	// OccurredOn is the last one's.
	OccurredOn time.Time
}
