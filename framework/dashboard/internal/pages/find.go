package pages

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// findTime bounds the search through the log and what is parked.
	findTime = 2 * time.Second
	// foundRows is how much of the log a search for an id or a correlation looks through.
	foundRows = 1_000_000
	// wordBytes is the longest of what there is to find: a key.
	wordBytes = 1024
)

// findPage is what there is to say of a word that leads nowhere.
type findPage struct {
	Word string
	// Looked are what was looked for, in words.
	Looked []string
	// Late says that time ran out.
	Late bool
}

// find goes to the page about a word: a sink, a schedule, a type, a key that is parked, an id
// or a correlation. What costs little is looked for first.
func find(ctx context.Context, r *request) (any, error) {
	page := findPage{Word: strings.TrimSpace(r.FormValue("q"))}
	switch {
	case page.Word == "":
		return page, nil
	case len(page.Word) > wordBytes || !utf8.ValidString(page.Word) || strings.ContainsRune(page.Word, 0):
		return nil, problem{http.StatusBadRequest, "that can be no id, key, sink or type: they have 1,024 bytes at most, as UTF-8, and no NUL"}
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	for _, look := range []struct {
		what string
		find func(ctx context.Context, word string) (*goTo, error)
	}{
		{"a sink", r.findSink}, {"a schedule", r.findSchedule}, {"a type in the last rows of the log, or in routes", r.findType},
		{"the key of a parked delivery", r.findKey}, {"the id, or the correlation, of a notification in a part of the log and among what is parked", r.findRelated},
	} {
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

// findKey asks for each sink by itself, which the index on sink and key serves.
func (r *request) findKey(ctx context.Context, word string) (*goTo, error) {
	sinks, err := r.Admin.Sinks(ctx)
	for _, sink := range sinks {
		filter := admin.Filter{Sink: sink.Sink, Key: word, States: []store.State{store.StateRetrying, store.StateBlocked, store.StateDead}}
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

// findRelated looks for an id that holds a time where its row must be, before it looks through much.
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
