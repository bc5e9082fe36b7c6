package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
type parkedForm struct{ Sink, Type, Key, Group, State, Metadata, Reason, Older, Newer, ID string }

func readParkedForm(v url.Values) parkedForm {
	text := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	return parkedForm{
		Sink: text("sink"), Type: text("type"), Key: v.Get("key"), Group: v.Get("group"), State: text("state"), Metadata: text("metadata"),
		Reason: text("reason"), Older: text("older"), Newer: text("newer"), ID: text("id"),
	}
}

// Fields returns the fields that are set.
func (f parkedForm) Fields() url.Values {
	v := make(url.Values)
	for name, text := range map[string]string{
		"sink": f.Sink, "type": f.Type, "key": f.Key, "group": f.Group, "state": f.State, "metadata": f.Metadata, "reason": f.Reason, "older": f.Older, "newer": f.Newer, "id": f.ID,
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

func (f parkedForm) filter() (admin.Filter, error) {
	filter := admin.Filter{Sink: f.Sink, ID: f.ID, Type: f.Type, Key: f.Key, Group: f.Group, Error: f.Reason}
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

// Reason returns the last error; "" if there was none.
func (r parkedRow) Reason() string { return cmp.Or(r.HookError, r.LastError) }

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
}

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
	page := parkedPage{Form: readParkedForm(query), States: parkedStates, First: query.Get("after") == ""}
	if page.Form.Reason != "" && !r.User.May(access.Operator) {
		return nil, problem{http.StatusForbidden, "only operators may search the texts of errors"}
	}
	filter, err := page.Form.filter()
	if err != nil {
		return nil, err
	}
	after, err := readPlace(query.Get("after"))
	if err != nil {
		return nil, err
	}
	page.Counts = r.parkedCounts(ctx)
	found, err := r.Admin.BrowseParked(ctx, filter, after, pageRows)
	if err != nil {
		return nil, err
	}
	page.Rows = parkedRows(found.Deliveries)
	if f := page.Form; f.Group != "" && f.Sink != "" {
		if page.Open, err = r.Store.Collection(ctx, f.Sink, store.CollectionRef{Group: f.Group}); err != nil {
			return nil, err
		}
	}
	if next := placeText(found.Next); next != "" {
		fields := page.Form.Fields()
		fields.Set("after", next)
		page.Next, page.Short = fields.Encode(), len(page.Rows) < pageRows
	}
	return page, nil
}
