package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/store"
)

// pageRows is how many rows a page lists.
const pageRows = 50

// parkedForm is the filter of parked deliveries, as in addresses and forms.
type parkedForm struct {
	Sink, Type, Key, Group, State, Metadata, Reason, Older, Newer, ID, Cause, Sort string
}

func readParkedForm(v url.Values) parkedForm {
	text := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	return parkedForm{
		Sink: text("sink"), Type: text("type"), Key: v.Get("key"), Group: v.Get("group"), State: text("state"), Metadata: text("metadata"),
		Reason: text("reason"), Older: text("older"), Newer: text("newer"), ID: text("id"), Cause: text("cause"), Sort: text("sort"),
	}
}

// Fields returns the fields that are set.
func (f parkedForm) Fields() url.Values {
	v := make(url.Values)
	for name, text := range map[string]string{
		"sink": f.Sink, "type": f.Type, "key": f.Key, "group": f.Group, "state": f.State, "metadata": f.Metadata, "reason": f.Reason, "older": f.Older, "newer": f.Newer, "id": f.ID, "cause": f.Cause, "sort": f.Sort,
	} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// Query returns the form as a query of an address.
func (f parkedForm) Query() string { return f.Fields().Encode() }

// Of returns the query for a sink and a state.
func (f parkedForm) Of(sink string, state store.State) string {
	f.Sink, f.State = sink, string(state)
	return f.Query()
}

// OfCause returns the form for a cause.
func (f parkedForm) OfCause(cause string) parkedForm {
	f.Cause = cause
	return f
}

// Narrows reports whether the form selects deliveries.
func (f parkedForm) Narrows() bool { return f != parkedForm{Sort: f.Sort} }

func (f parkedForm) filter() (admin.Filter, error) {
	filter := admin.Filter{Sink: f.Sink, ID: f.ID, Type: f.Type, Key: f.Key, Group: f.Group, Error: f.Reason, Cause: f.Cause}
	if f.State != "" {
		filter.States = []store.State{store.State(f.State)}
	}
	var err error
	if f.Metadata != "" {
		if filter.Metadata, err = admin.ParseMetadata([]string{f.Metadata}); err != nil {
			return filter, err
		}
	}
	if filter.OlderThan, err = readAge(f.Older); err != nil {
		return filter, err
	}
	if filter.NewerThan, err = readAge(f.Newer); err != nil {
		return filter, err
	}
	return filter, filter.Validate()
}

// readAge reads 30m, 12h or 2d.
func readAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	days, isDays := strings.CutSuffix(text, "d")
	d, err := time.ParseDuration(text)
	if n, daysErr := strconv.ParseUint(days, 10, 16); isDays && daysErr == nil {
		d, err = time.Duration(n)*24*time.Hour, nil
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%w: %q is not an age: use one like 30m, 12h or 2d", admin.ErrFilter, text)
	}
	return d, nil
}

// placeText formats the place of a parked delivery for forms and addresses. The zero value is "".
func placeText(p store.ParkedPlace) string {
	if p == (store.ParkedPlace{}) {
		return ""
	}
	text, _ := json.Marshal([]any{p.Sink, p.Offset, p.ID})
	return string(text)
}

func readPlace(text string) (p store.ParkedPlace, err error) {
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &[]any{&p.Sink, &p.Offset, &p.ID}); err != nil || strings.ContainsRune(p.Sink+p.ID, 0) {
		return p, problem{http.StatusBadRequest, "this address is incomplete or was changed: start from the first page"}
	}
	return p, nil
}

// parkedRow is a parked delivery in a list.
type parkedRow struct{ store.ParkedDelivery }

// Value identifies the delivery in forms.
func (r parkedRow) Value() string { return placeText(r.Place()) }

// Waits returns what a blocked, scheduled, quiet, settling or collecting delivery waits for; "" for other states.
func (r parkedRow) Waits() string {
	switch r.State {
	case store.StateBlocked:
		return "an earlier delivery of its key"
	case store.StateScheduled:
		return "its time"
	case store.StateQuiet:
		return "the hours of the sink"
	case store.StateSettling:
		return "its hook"
	case store.StateCollecting:
		if !r.InCollection() {
			return "its collection"
		}
	}
	return ""
}

// Reason returns the last error without its class; "" if there was none.
func (r parkedRow) Reason() string {
	_, cause := r.Failure()
	return cmp.Or(r.HookError, cause)
}

// Class returns the class of the last error; "" if it is not known, or Reason is about a hook.
func (r parkedRow) Class() string {
	if r.HookError != "" {
		return ""
	}
	class, _ := r.Failure()
	return class
}

func parkedRows(found []store.ParkedDelivery) []parkedRow {
	rows := make([]parkedRow, len(found))
	for i, d := range found {
		rows[i] = parkedRow{d}
	}
	return rows
}

// parkedStates are the states that the filter offers.
var parkedStates = []store.State{store.StateRetrying, store.StateScheduled, store.StateBlocked, store.StateQuiet, store.StateDead, store.StateSettling, store.StateCollecting, store.StateCancelled}

// parkedPage is the list of parked deliveries.
type parkedPage struct {
	Form   parkedForm
	States []store.State
	Counts []store.ParkedCount
	Rows   []parkedRow
	// Open is the open collection of the filter's group and sink; it has no members if there is none.
	Open store.Collection
	// Next is the query of the next page; "" if there is none. First says that this is the first
	// page. Short says that the page is not full, since the search of one page is limited.
	Next         string
	First, Short bool
	// Orders are the orders that Form.Sort may name. Cut says that there are more deliveries than were sorted.
	Orders []parkedOrder
	Cut    bool
	// Causes are those of several of the deliveries, or the one that the form names. Others is how many
	// more such causes there are, and Beyond that there are more failed deliveries than were grouped.
	Causes []admin.Cause
	Others int
	Beyond bool
}

type parkedOrder struct {
	Name, Text string
	compare    func(a, b *store.ParkedDelivery) int
}

// parkedOrders are the orders other than that of the log, in which the list needs no sorting.
var parkedOrders = []parkedOrder{
	{"oldest", "oldest first", func(a, b *store.ParkedDelivery) int { return a.FirstParkedAt.Compare(b.FirstParkedAt) }},
	{"attempts", "most attempts first", func(a, b *store.ParkedDelivery) int { return cmp.Compare(b.Attempt, a.Attempt) }},
	{"due", "next attempt first", func(a, b *store.ParkedDelivery) int {
		if a.DueAt.IsZero() != b.DueAt.IsZero() { // those that wait for nothing come last
			return cmp.Compare(b.DueAt.Unix(), a.DueAt.Unix())
		}
		return a.DueAt.Compare(b.DueAt)
	}},
}

const (
	// sortedRows is how many deliveries are sorted: the first ones of the log that match.
	sortedRows  = 1000
	shownCauses = 5
)

// parkedCounts returns the counts of the last sample, as the overview shows them.
func (r *request) parkedCounts(ctx context.Context) (counts []store.ParkedCount) {
	snapshot := r.Store.Snapshot(r.History.Snapshot(ctx))
	for _, s := range snapshot.Sample.Sinks {
		for _, p := range s.Parked.States {
			if p.Count > 0 {
				counts = append(counts, store.ParkedCount{Sink: s.Sink, State: p.State, Count: int64(p.Count), HookError: p.HookError})
			}
		}
	}
	return counts
}

func parked(ctx context.Context, r *request) (any, error) {
	query := r.URL.Query()
	page := parkedPage{Form: readParkedForm(query), States: parkedStates, Orders: parkedOrders, First: query.Get("after") == "" && query.Get("from") == ""}
	if page.Form.Reason != "" && !r.User.May(access.Operator) {
		return nil, problem{http.StatusForbidden, "only operators may search the texts of errors"}
	}
	filter, err := page.Form.filter()
	if err != nil {
		return nil, err
	}
	page.Counts = r.parkedCounts(ctx)
	if page.First {
		if err := page.group(ctx, r, filter); err != nil {
			return nil, err
		}
	}
	if err := page.list(ctx, r, filter); err != nil {
		return nil, err
	}
	if f := page.Form; f.Group != "" && f.Sink != "" {
		if page.Open, err = r.Store.Collection(ctx, f.Sink, store.CollectionRef{Group: f.Group}); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// list adds one page of the deliveries that match.
func (page *parkedPage) list(ctx context.Context, r *request, filter admin.Filter) error {
	query, fields := r.URL.Query(), page.Form.Fields()
	if page.Form.Sort != "" {
		return page.sorted(ctx, r, filter)
	}
	after, err := readPlace(query.Get("after"))
	if err != nil {
		return err
	}
	found, err := r.Admin.BrowseParked(ctx, filter, after, pageRows)
	page.Rows = parkedRows(found.Deliveries)
	if next := placeText(found.Next); next != "" {
		fields.Set("after", next)
		page.Next, page.Short = fields.Encode(), len(page.Rows) < pageRows
	}
	return err
}

// sorted is list in another order than that of the log.
func (page *parkedPage) sorted(ctx context.Context, r *request, filter admin.Filter) error {
	order := slices.IndexFunc(parkedOrders, func(o parkedOrder) bool { return o.Name == page.Form.Sort })
	if order < 0 {
		return problem{http.StatusBadRequest, fmt.Sprintf("there is no order %q: use one of the list", cut(page.Form.Sort, 50))}
	}
	from, err := number(r.URL.Query(), "from")
	if err != nil {
		return err
	}
	found, err := r.Admin.BrowseParked(ctx, filter, store.ParkedPlace{}, sortedRows)
	if err != nil {
		return err
	}
	all := found.Deliveries
	slices.SortStableFunc(all, func(a, b store.ParkedDelivery) int { return parkedOrders[order].compare(&a, &b) })
	begin := int(min(from, int64(len(all))))
	end := min(begin+pageRows, len(all))
	page.Rows, page.Cut = parkedRows(all[begin:end]), found.Next != (store.ParkedPlace{})
	if end < len(all) {
		fields := page.Form.Fields()
		fields.Set("from", strconv.Itoa(end))
		page.Next = fields.Encode()
	}
	return nil
}

// group adds the causes of what has failed.
func (page *parkedPage) group(ctx context.Context, r *request, filter admin.Filter) error {
	all, err := r.Admin.Causes(ctx, filter)
	for _, c := range all.Causes {
		switch {
		case page.Form.Cause != "" && c.ID != page.Form.Cause, page.Form.Cause == "" && c.Count == 1:
		case len(page.Causes) == shownCauses:
			page.Others++
		default:
			page.Causes = append(page.Causes, c)
		}
	}
	page.Beyond = all.More
	return err
}
