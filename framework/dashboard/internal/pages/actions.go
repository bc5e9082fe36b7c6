package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/acts"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// listedActions is how many of the latest actions are listed.
	listedActions = 100
	// actionRefresh is how often the page of one that runs is loaded again.
	actionRefresh = 2 * time.Second
)

// actionRow is an action in a list, or on its own page.
type actionRow struct {
	store.Action
	// Planned is how many deliveries it is about, and Running says that it runs, as far as this
	// process knows.
	Planned int64
	Running bool
	MayAct  bool
}

// State is where it is, in a word.
func (a actionRow) State() string {
	switch {
	case !a.EndedAt.IsZero():
		return "done"
	case a.Running:
		return "running"
	}
	return "interrupted"
}

// Words is what it was done to, in words.
func (a actionRow) Words() string {
	var filter map[string]json.RawMessage
	if json.Unmarshal(a.Filter, &filter) != nil {
		return string(a.Filter)
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		var text string
		var list []json.RawMessage
		var texts []string
		switch raw := filter[name]; {
		case name == "planned_at":
			continue
		case name == "selected" && json.Unmarshal(raw, &list) == nil:
			text = count(int64(len(list)))
		case json.Unmarshal(raw, &text) == nil:
		case json.Unmarshal(raw, &texts) == nil:
			text = strings.Join(texts, ", ")
		default:
			text = string(bytes.TrimSpace(raw))
		}
		words = append(words, strings.ReplaceAll(name, "_", " ")+" "+text)
	}
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, " · ")
}

// actionRow adds what this process knows of an action: what ran before the action was read, since
// one that ends meanwhile is not interrupted.
func (r *request) actionRow(a store.Action, runs []acts.Act) actionRow {
	row := actionRow{Action: a, MayAct: r.operates() == nil}
	for _, running := range runs {
		if running.ID == a.ID {
			row.Running, row.Planned = true, running.Planned
		}
	}
	return row
}

func actions(ctx context.Context, r *request) (any, error) {
	runs := r.Acts.Running()
	found, err := r.Admin.Actions(ctx, listedActions)
	if err != nil {
		return nil, err
	}
	page := struct {
		Rows []actionRow
		Most int
	}{Most: listedActions}
	for _, a := range found {
		page.Rows = append(page.Rows, r.actionRow(a, runs))
	}
	return page, nil
}

// action is the page of one. It comes again while the action runs.
func action(ctx context.Context, r *request) (any, error) {
	runs := r.Acts.Running()
	a, err := r.Store.Action(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	row := r.actionRow(a, runs)
	if row.State() == "running" {
		return answer{refresh: actionRefresh, data: row}, nil
	}
	return row, nil
}

// cancel ends an action between two of its batches.
func cancel(_ context.Context, r *request) (any, error) {
	if err := r.operates(); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if !r.Acts.Cancel(id) {
		return nil, problem{http.StatusConflict, "this action does not run here: it has ended, or another process runs it"}
	}
	return goTo{path: "/actions/" + url.PathEscape(id)}, nil
}
