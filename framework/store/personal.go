package store

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Personal finds the notifications of one person, and removes what the tables have of them. It is part of
// each store.
//
// A purge or a cut consists of batches of an action, each one short transaction. It begins with the zero
// PersonalPlace, and goes on with the Next of each result until one is Done. The log is searched in parts of
// 5,000 rows, up to its end when the first batch began: what is committed later is found by the next purge. A
// log outside of the database (Source) is left alone.
//
// Forwarders may go on meanwhile. They never read a purged row again, but what they have in hand at that moment may
// still reach its sink. Then it leaves a receipt, or a parked delivery if that fails. Once the sinks have passed the
// end that the log had, and nothing is being tried again, another purge finds all of it: the deliveries by key, the
// receipts by id.
type Personal interface {
	// CountPersonal counts what a filter selects, by table, and leaves out tables that have nothing. It reads
	// the whole log, in parts, without a transaction.
	CountPersonal(ctx context.Context, f PersonalFilter) ([]PersonalCount, error)
	// PurgePersonal deletes the selected notifications: their rows of the log, and their parked deliveries in
	// any state, receipts, ids in inboxes, cancellations, attempts and uniqueness keys. Actions whose filter or
	// reason names an id or a key of the filter stay, without both; a purge, which names none in its filter, only
	// loses its reason.
	PurgePersonal(ctx context.Context, b PersonalBatch) (PersonalResult, error)
	// CutPersonal deletes no row. It removes the texts that sinks have returned for the selected notifications,
	// which may echo their content: errors, receipts, requests and answers. They become [ErasedText], or empty.
	// What a forwarder has in hand at that moment may come back with the next attempt.
	CutPersonal(ctx context.Context, b PersonalBatch) (PersonalResult, error)
	// RewritePayloads replaces payloads in the log and of parked deliveries, and nothing else of a row, so that it is
	// still delivered. Forwarders that have read a row before deliver what they have read.
	RewritePayloads(ctx context.Context, b RewriteBatch) (PersonalResult, error)
}

// ErasedText stands in place of a text that CutPersonal has removed.
const ErasedText = "erased"

// PersonalFilter selects notifications: those with one of the ids, one of the ordering keys, or a private value
// that is encrypted with one of the private keys. It also selects what sinks have published for themselves to
// deliver such a notification. Without any of them it selects nothing; empty texts
// select nothing either.
//
// Receipts, attempts, inboxes and cancellations have no keys. There it selects the ids of what it finds in the
// log and among the parked deliveries, and IDs: after retention only IDs are left.
type PersonalFilter struct {
	IDs, Keys []string
	// PrivateKeys are ids of keys, as in notification.MetadataPrivateKeys.
	PrivateKeys []string
}

// PersonalCount is what one table has of the selected notifications.
type PersonalCount struct {
	// Table is the name without the prefix: log, parked, receipts, inbox, cancelled, attempts, unique or actions.
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	// Undelivered is how many rows of the log some sink may not have passed yet.
	Undelivered int64 `json:"undelivered,omitempty"`
	// Oldest and Newest are when the first and the last of them occurred, or were written. Uniqueness keys
	// and actions have none.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
}

// PersonalBatch is the next part of a purge or a cut.
type PersonalBatch struct {
	// Action is the id of the action that it belongs to, whose count it raises.
	Action string
	Filter PersonalFilter
	After  PersonalPlace
}

// RewriteBatch is the next part of a change of payloads.
type RewriteBatch struct {
	// Action is the id of the action that it belongs to, whose count it raises.
	Action string
	// Types are those of the rows; there is at least one.
	Types []string
	// Change gets the offset, the id, the type and the payload of a row, and returns its new payload; ok is false
	// if it stays.
	Change func(e *notification.Envelope) (payload []byte, ok bool)
	After  PersonalPlace
}

// PersonalPlace is how far a purge or a cut has come. The zero value is the beginning.
type PersonalPlace struct {
	// Table is the one that is searched: log, then parked, and at last actions, with all that is known by ids
	// and keys of the filter.
	Table string
	// UpTo is the end of the log at the beginning, and After the last row that was looked at.
	UpTo  int64
	After ParkedPlace
}

// PersonalResult is the result of a batch.
type PersonalResult struct {
	// Changed is the number of rows that were deleted or changed, in all tables.
	Changed int
	Next    PersonalPlace
	// Done reports that there is no next batch.
	Done bool
}
