package pages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// listedActions is how many of the latest actions are listed.
	listedActions = 100
	// actionRefresh is how often a browser without scripts reloads the page of a running action.
	actionRefresh = 2 * time.Second
)

// actionRow is an action in a list, or on its own page.
type actionRow struct {
	store.Action
	MayAct bool
}

// Running reports whether the action runs and can be cancelled.
func (a actionRow) Running() bool { return a.State == store.ActionRunning }

// Words describes the action's filter.
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

func actions(ctx context.Context, r *request) (any, error) {
	found, err := r.Admin.Actions(ctx, listedActions)
	if err != nil {
		return nil, err
	}
	page := struct {
		Rows []actionRow
		Most int
	}{Most: listedActions}
	for _, a := range found {
		page.Rows = append(page.Rows, actionRow{Action: a})
	}
	return page, nil
}

// action shows one action.
func action(ctx context.Context, r *request) (any, error) {
	a, err := r.Admin.Action(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	row := actionRow{a, r.User.May(access.Operator)}
	if row.Running() {
		return answer{refresh: actionRefresh, data: row}, nil
	}
	return row, nil
}

// cancel ends an action after its current batch, also in another process.
func cancel(ctx context.Context, r *request) (any, error) {
	id := r.PathValue("id")
	_, err := r.Admin.Cancel(ctx, id)
	switch {
	case errors.Is(err, store.ErrActionEnded):
		return nil, problem{http.StatusConflict, "this action has already ended or was cancelled"}
	case err != nil:
		return nil, err
	}
	r.Acts.Cancel(id) // an action of this process stops at once
	return goTo{path: "/actions/" + url.PathEscape(id)}, nil
}
