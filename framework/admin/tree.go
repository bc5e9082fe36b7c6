package admin

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// How much of the log one call of Tree examines, and how many notifications it returns.
const (
	treeOffsets = 1_000_000
	treeLimit   = 1000
)

// Tree holds the notifications of one correlation, each below the one that caused it.
type Tree struct {
	CorrelationID string `json:"correlation_id"`
	// Roots are the notifications that none of the others caused, in log order.
	Roots []*Branch `json:"notifications"`
	// Count is the number of notifications in the tree.
	Count int `json:"count"`
	// First and Last are the first and last row of the log that was examined; nil if there are
	// none. Parked deliveries are always examined completely.
	First *store.Row `json:"first,omitempty"`
	Last  *store.Row `json:"last,omitempty"`
	// Omitted is how many parked deliveries were left out because there are too many.
	Omitted int `json:"omitted,omitempty"`
	// Next is the offset from which to continue; 0: the end of the log was reached.
	Next int64 `json:"next,omitempty"`
	// Oldest is the first offset of the log.
	Oldest int64 `json:"oldest,omitempty"`
}

// Branch is a notification and those it caused.
type Branch struct {
	Answer
	// CausationID is the id of the notification that caused it, which may not have been found.
	CausationID string `json:"causation_id,omitempty"`
	// Caused are the notifications published by its handlers, in log order.
	Caused []*Branch `json:"caused,omitempty"`
}

// Tree finds the notifications that belong together, and where each of them is at each sink,
// as Why does. id is a correlation id, or the id of one of the notifications.
//
// The correlation id has no index, so a call examines at most a million offsets of the log and
// returns at most a thousand notifications. It begins at offset from if that is not 0.
// Otherwise it begins at the time contained in the id, if it is a UUIDv7 (the default for ids),
// or else a million offsets before the end. For a notification whose correlation id contains no
// time, it begins half a million offsets before the notification. Verdicts of sinks that have not
// read a notification do not count the rows before it.
func (a *Admin) Tree(ctx context.Context, id string, from int64, routing Routing) (Tree, error) {
	query := store.RelatedQuery{ID: id, From: from, Since: notification.IDTime(id), Offsets: treeOffsets, Limit: treeLimit}
	related, err := a.store.Related(ctx, query)
	if err != nil {
		return Tree{}, err
	}
	if e := find(related.Traces, id); e != nil && correlationOf(e) != id {
		query.ID = correlationOf(e)
		if query.Since = notification.IDTime(query.ID); query.Since.IsZero() && from == 0 {
			query.From = max(1, e.Offset-treeOffsets/2)
		}
		if related, err = a.store.Related(ctx, query); err != nil {
			return Tree{}, err
		}
	}
	inquiry, err := a.inquire(ctx, routing)
	if err != nil {
		return Tree{}, err
	}
	inquiry.uncounted = true
	tree := Tree{CorrelationID: query.ID, Roots: []*Branch{}, Count: len(related.Traces), First: related.First, Last: related.Last, Omitted: related.Omitted, Next: related.Next}
	if related.Oldest != nil {
		tree.Oldest = related.Oldest.Offset
	}
	known := make(map[string]*Branch)
	for i := range related.Traces {
		inquiry.trace = related.Traces[i]
		e := inquiry.trace.Envelope()
		b := &Branch{CausationID: e.Metadata.Get(notification.MetadataCausationID)}
		if b.Answer, err = inquiry.answer(ctx, e.ID); err != nil {
			return Tree{}, err
		}
		// A cause is before its effects in the log. A notification whose cause was not found
		// before it is a root, so there are no cycles.
		if cause := known[b.CausationID]; cause != nil {
			cause.Caused = append(cause.Caused, b)
		} else {
			tree.Roots = append(tree.Roots, b)
		}
		known[e.ID] = b
	}
	return tree, nil
}

func find(traces []store.Trace, id string) *notification.Envelope {
	for i := range traces {
		if e := traces[i].Envelope(); e.ID == id {
			return e
		}
	}
	return nil
}

// correlationOf returns the id of the correlation that a notification belongs to or begins.
func correlationOf(e *notification.Envelope) string {
	if id := e.Metadata.Get(notification.MetadataCorrelationID); id != "" {
		return id
	}
	return e.ID
}
