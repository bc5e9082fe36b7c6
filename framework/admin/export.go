package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// ExportRequest selects rows of the log. The zero value selects all.
type ExportRequest struct {
	// From and To select rows that occurred at From or later, and before To. The zero value
	// means no bound.
	From, To time.Time
	// Types are types (order.placed), prefixes of types (order.*), or *, as stored in the log:
	// an alias counts as a separate type. Empty means all types.
	Types []string
	// Sinks select notifications with a receipt of at least one of these sinks, and only the
	// receipts of these sinks. Empty means all notifications, with all receipts.
	Sinks []string
}

func (r ExportRequest) filter() (store.Filter, error) {
	f := store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Since: r.From, Until: r.To}
	var problems []error
	for _, pattern := range r.Types {
		types, err := parseType(pattern)
		switch {
		case err != nil:
			problems = append(problems, err)
		case types.None():
			problems = append(problems, fmt.Errorf("%w: a type is empty", ErrFilter))
		}
		f.Types.Names = append(f.Types.Names, types.Names...)
		f.Types.Prefixes = append(f.Types.Prefixes, types.Prefixes...)
	}
	if len(r.Types) == 0 || slices.Contains(r.Types, "*") {
		f.Types = notification.AllTypes
	}
	if !r.From.IsZero() && !r.To.IsZero() && !r.From.Before(r.To) {
		problems = append(problems, fmt.Errorf("%w: the period from %s to %s is empty", ErrFilter, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339)))
	}
	return f, errors.Join(problems...)
}

// Exported is a row of the log with the receipts of its deliveries, by sink.
type Exported struct {
	notification.Envelope
	Receipts []store.TracedReceipt
}

// Exporting is the progress of an export.
type Exporting struct {
	// Rows is how many rows were exported, and Receipts how many receipts with them.
	Rows     int64 `json:"rows"`
	Receipts int64 `json:"receipts"`
	// Offset is the last offset that was read. UpTo is the end of the log when the export
	// began: no later row is exported.
	Offset int64 `json:"-"`
	UpTo   int64 `json:"up_to"`
	// Gone reports that the log begins after From: retention may have removed rows of the
	// period. It is set at the end.
	Gone bool `json:"gone"`
	// Oldest is the first row of the log at the end of the export, or nil.
	Oldest *store.Row `json:"oldest"`
}

// exportRows is the maximum number of rows of a page.
const exportRows = 1000

// Export calls row with each selected row, and look, which may be nil, with the progress after
// each page. It exports what is committed when it begins, each row once; rows of transactions
// still open at that time are left out. The rows come in the order in which a new sink would
// read them, which is that of the log's offsets.
//
// It reads the log page by page, in constant memory, without a transaction across pages. So
// retention may remove rows while it runs: see Exporting.Gone. Receipts are those archived when
// their page is read. An error of row ends the export.
func (a *Admin) Export(ctx context.Context, r ExportRequest, row func(*Exported) error, look func(Exporting)) (Exporting, error) {
	e := &export{admin: a, request: r, row: row}
	filter, err := r.filter()
	if err != nil {
		return e.done, err
	}
	for _, sink := range r.Sinks {
		if _, err := a.store.Traces(ctx, sink); err != nil {
			return e.done, err // an unknown sink is more likely a typing mistake than intended
		}
	}
	target, err := a.store.Probe(ctx)
	if err != nil {
		return e.done, err
	}
	e.done.UpTo = target.Last()
	reader, err := a.store.NewReader(nil, filter)
	if err != nil {
		return e.done, err
	}
	for caughtUp := false; !caughtUp; {
		page, err := reader.Next(ctx, target, exportRows)
		if err != nil {
			return e.done, err
		}
		if err := e.page(ctx, page.Envelopes); err != nil {
			return e.done, err
		}
		if caughtUp = page.CaughtUp; look != nil {
			look(e.done)
		}
	}
	return e.done, e.end(ctx)
}

// export is one call of Export.
type export struct {
	admin   *Admin
	request ExportRequest
	row     func(*Exported) error
	done    Exporting
}

func (e *export) page(ctx context.Context, envelopes []notification.Envelope) error {
	refs := make([]store.Ref, len(envelopes))
	for i := range envelopes {
		refs[i] = store.RefOf(&envelopes[i])
	}
	receipts, err := e.admin.store.ReceiptsOf(ctx, refs)
	if err != nil {
		return err
	}
	byRow := make(map[store.Ref][]store.TracedReceipt)
	for _, r := range receipts {
		if len(e.request.Sinks) == 0 || slices.Contains(e.request.Sinks, r.Sink) {
			ref := store.Ref{Offset: r.Offset, ID: r.ID}
			byRow[ref] = append(byRow[ref], r)
		}
	}
	for i := range envelopes {
		exported := &Exported{envelopes[i], byRow[refs[i]]}
		e.done.Offset = exported.Offset
		if len(e.request.Sinks) > 0 && len(exported.Receipts) == 0 {
			continue
		}
		if err := e.row(exported); err != nil {
			return err
		}
		e.done.Rows++
		e.done.Receipts += int64(len(exported.Receipts))
	}
	return nil
}

// end reads what retention has left, after all pages, so that rows removed meanwhile count.
func (e *export) end(ctx context.Context) (err error) {
	e.done.Oldest, err = e.admin.store.Oldest(ctx)
	from := e.request.From
	switch oldest := e.done.Oldest; {
	case err != nil || from.IsZero():
	case oldest == nil:
		e.done.Gone = e.done.UpTo > 0
	default:
		e.done.Gone = oldest.Offset > 1 && from.Before(oldest.OccurredOn)
	}
	return err
}
