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
	// From and To bound when it occurred: from From on and before To. The zero value is
	// no bound.
	From, To time.Time
	// Types are types (order.placed), beginnings of types (order.*), or *, as they stand
	// in the log: an alias is a type of its own. None are all.
	Types []string
	// Sinks select the notifications of which at least one of them has a receipt, with
	// the receipts of these sinks. None are all notifications, with all receipts.
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
		problems = append(problems, fmt.Errorf("%w: nothing occurred from %s on and before %s", ErrFilter, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339)))
	}
	return f, errors.Join(problems...)
}

// Exported is a row of the log, and what is archived of its deliveries, by sink.
type Exported struct {
	notification.Envelope
	Receipts []store.TracedReceipt
}

// Exporting is how far an export is.
type Exporting struct {
	// Rows were handed on, with so many Receipts.
	Rows     int64 `json:"rows"`
	Receipts int64 `json:"receipts"`
	// Offset is the last one that was looked at, and UpTo the end of the log as it was
	// when the export began: no row behind it is exported.
	Offset int64 `json:"-"`
	UpTo   int64 `json:"up_to"`
	// Gone reports that the log begins after From: retention may have taken rows of the
	// period. It is known at the end.
	Gone bool `json:"gone"`
	// Oldest is the first row that is left in the log at the end; nil: there is none.
	Oldest *store.Row `json:"oldest"`
}

// exportRows is how many rows a page of an export has at most.
const exportRows = 1000

// Export hands each row of a request to row, and after each page the progress to look,
// which may be nil. It exports what is committed when it begins, each row once: rows of
// transactions that are open then are left out. The rows come in the order in which a new
// sink would read them, which is that of the log's offsets.
//
// It reads the log page by page, in constant memory, and no transaction is open between
// two pages. So retention may remove rows while it runs: see Exporting.Gone. Receipts are
// those that are archived when their page is read. An error of row ends it.
func (a *Admin) Export(ctx context.Context, r ExportRequest, row func(*Exported) error, look func(Exporting)) (Exporting, error) {
	e := &export{admin: a, request: r, row: row}
	filter, err := r.filter()
	if err != nil {
		return e.done, err
	}
	for _, sink := range r.Sinks {
		if _, err := a.store.Traces(ctx, sink); err != nil {
			return e.done, err // of a sink that there is not, which is more likely a slip than a wish
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

// end looks what retention has left, once all is read: rows that went meanwhile count.
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
