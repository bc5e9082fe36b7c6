package admin

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// How much of the log one call of Tree looks through, and how many notifications it returns.
const (
	treeOffsets = 1_000_000
	treeLimit   = 1000
)

// Tree is the notifications of one correlation, each below the one that caused it.
type Tree struct {
	CorrelationID string `json:"correlation_id"`
	// Roots are those that none of the others has caused, in the order of the log.
	Roots []*Branch `json:"notifications"`
	// Count is how many there are in all.
	Count int `json:"count"`
	// First and Last are the rows between which the log was looked through; nil: there
	// are none. What is parked was looked through as a whole.
	First *store.Row `json:"first,omitempty"`
	Last  *store.Row `json:"last,omitempty"`
	// Omitted is how many parked deliveries were left out: there are too many.
	Omitted int `json:"omitted,omitempty"`
	// Next is the offset from which to look on; 0: that was the end of the log.
	Next int64 `json:"next,omitempty"`
	// Oldest is the offset at which the log begins.
	Oldest int64 `json:"oldest,omitempty"`
}

// Branch is a notification and what it caused.
type Branch struct {
	Answer
	// CausationID is the id of what caused it, which need not have been found.
	CausationID string `json:"causation_id,omitempty"`
	// Caused are those that were published in its handlers, in the order of the log.
	Caused []*Branch `json:"caused,omitempty"`
}

// Tree finds the notifications that belong together, and where each of them is at each sink,
// as Why does. id is a correlation id, or the id of one of the notifications.
//
// The correlation has no index, so a call looks through a million offsets of the log and returns
// a thousand notifications at most. It begins at the time that the id holds, if it is a UUIDv7, as
// ids are unless the application chooses them, else a million before the end; with from
// at that offset. The verdicts of a sink that has not got to a notification do not say how much
// is before it.
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
		// A cause stands before its effects in the log. What claims another one is a root,
		// so there are no circles.
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

// correlationOf is the correlation that a notification belongs to, or begins.
func correlationOf(e *notification.Envelope) string {
	if id := e.Metadata.Get(notification.MetadataCorrelationID); id != "" {
		return id
	}
	return e.ID
}
