package pages

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// findTime limits the search of the log and of parked deliveries.
var findTime = 2 * time.Second

const (
	// foundRows is how many offsets of the log a search for an id or a correlation covers.
	foundRows = 1_000_000
	// wordBytes is the maximum length of a key, the longest thing to find.
	wordBytes = 1024
)

// findPage is the data of the page for a word that was not found.
type findPage struct {
	Word string
	// Looked lists what the search has covered.
	Looked []string
	// Late says that the search ran out of time.
	Late bool
}

// find goes to the page of a word: a sink, a schedule, an endpoint, a type, a key of a parked delivery or in the
// log, an id or a correlation. Cheap searches come first.
func find(ctx context.Context, r *request) (any, error) {
	page := findPage{Word: strings.TrimSpace(r.FormValue("q"))}
	switch {
	case page.Word == "":
		return page, nil
	case len(page.Word) > wordBytes || !utf8.ValidString(page.Word) || strings.ContainsRune(page.Word, 0):
		return nil, problem{http.StatusBadRequest, "this cannot be an id, key, sink or type: they are UTF-8 of at most 1,024 bytes without a NUL"}
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	type search struct {
		what string
		find func(ctx context.Context, word string) (*goTo, error)
	}
	searches := []search{
		{"a sink", r.findSink}, {"a schedule", r.findSchedule}, {"a type in the routes, or in the last rows of the log", r.findType},
		{"the key of a parked delivery", r.findKey}, {"the key of a notification, in the last 100,000 offsets of the log", r.findLogged}, {"the id or the correlation id of a notification, in a part of the log and among parked deliveries", r.findRelated},
	}
	if r.Endpoints != nil {
		searches = slices.Insert(searches, 2, search{"an endpoint of a customer, or its tenant", r.findEndpoint})
	}
	for _, look := range searches {
		to, err := look.find(ctx, page.Word)
		switch {
		case ctx.Err() != nil:
			page.Late = true
			return page, nil
		case err != nil:
			return nil, err
		case to != nil:
			return *to, nil
		}
		page.Looked = append(page.Looked, look.what)
	}
	return page, nil
}

func (r *request) findSink(ctx context.Context, word string) (*goTo, error) {
	sinks, err := r.Admin.Sinks(ctx)
	if err != nil || !slices.ContainsFunc(sinks, func(s admin.SinkStatus) bool { return s.Sink == word }) {
		return nil, err
	}
	return &goTo{path: sinkPath(word)}, nil
}

func (r *request) findSchedule(ctx context.Context, word string) (*goTo, error) {
	all, err := r.Admin.Schedules(ctx)
	if err != nil || !slices.ContainsFunc(all, func(s store.Schedule) bool { return s.Name == word }) {
		return nil, err
	}
	return &goTo{path: "/schedules"}, nil
}

func (r *request) findEndpoint(ctx context.Context, word string) (*goTo, error) {
	_, err := r.Endpoints.Find(ctx, word)
	if err == nil {
		return &goTo{path: endpointPath(word)}, nil
	}
	if !errors.Is(err, webhooks.ErrUnknown) {
		return nil, err
	}
	found, err := r.Endpoints.List(ctx, webhooks.Query{Tenant: word, Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &goTo{path: "/endpoints", query: []any{"tenant", word, "all", 1}}, nil
}

func (r *request) findType(ctx context.Context, word string) (*goTo, error) {
	known := r.Routing.Routes != nil && slices.Contains(r.Routing.Routes.Types(), word)
	if !known && r.Types != nil {
		_, known = r.Types.Lookup(word)
	}
	if !known {
		counts, err := r.Admin.Types(ctx, countedRows)
		if err != nil || !slices.ContainsFunc(counts, func(c store.TypeCount) bool { return c.Type == word }) {
			return nil, err
		}
	}
	return &goTo{path: "/types", query: []any{"type", word}}, nil
}

// findKey searches sink by sink, which the index on sink and key supports.
func (r *request) findKey(ctx context.Context, word string) (*goTo, error) {
	sinks, err := r.Admin.Sinks(ctx)
	for _, sink := range sinks {
		filter := admin.Filter{Sink: sink.Sink, Key: word, States: []store.State{store.StateRetrying, store.StateBlocked, store.StateQuiet, store.StateDead}}
		found, err := r.Admin.Parked(ctx, filter, store.ParkedPlace{}, 1)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &goTo{path: "/parked", query: []any{"key", word}}, nil
		}
	}
	return nil, err
}

// findLogged searches the end of the log for a key.
func (r *request) findLogged(ctx context.Context, word string) (*goTo, error) {
	if store.SourceOf(r.Store) != nil {
		return nil, nil
	}
	page, err := r.Admin.Browse(ctx, admin.LogFilter{Key: word}, 0, 1)
	if err != nil || len(page.Rows) == 0 {
		return nil, err
	}
	return &goTo{path: "/log", query: []any{"key", word}}, nil
}

// findRelated first looks up an id that contains a time, which is cheap, and then searches the
// log for an id or a correlation.
func (r *request) findRelated(ctx context.Context, word string) (*goTo, error) {
	if !notification.IDTime(word).IsZero() {
		page, err := r.Admin.Browse(ctx, admin.LogFilter{ID: word}, 0, 1)
		if err != nil {
			return nil, err
		}
		if len(page.Rows) > 0 {
			return &goTo{path: "/notifications/" + url.PathEscape(word)}, nil
		}
	}
	related, err := r.Store.Related(ctx, store.RelatedQuery{ID: word, Since: notification.IDTime(word), Offsets: foundRows, Limit: 1})
	if err != nil || len(related.Traces) == 0 {
		return nil, err
	}
	return &goTo{path: "/notifications/" + url.PathEscape(related.Traces[0].Envelope().ID)}, nil
}
