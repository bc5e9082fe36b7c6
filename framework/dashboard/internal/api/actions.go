package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// task describes what to plan or to do.
type task struct {
	// Action is requeue, discard, skip, reroute, replay, purge or erase.
	Action string `json:"action"`
	// Replay is required for a replay, Purge for a purge, Erase for an erase, and Filter for the other actions.
	Filter *admin.Filter       `json:"filter,omitempty"`
	Replay *replayTask         `json:"replay,omitempty"`
	Purge  *admin.PurgeRequest `json:"purge,omitempty"`
	Erase  *eraseTask          `json:"erase,omitempty"`
}

// eraseTask names a person as the application does. No answer, log or table has the name.
type eraseTask struct {
	Subject string `json:"subject"`
}

// has reports whether the task has a member, and none of another action.
func (t task) has(member bool) bool {
	n := 0
	for _, given := range []bool{t.Filter != nil, t.Replay != nil, t.Purge != nil, t.Erase != nil} {
		if given {
			n++
		}
	}
	return member && n == 1
}

// replayTask is an admin.ReplayRequest with the routes of this process.
type replayTask struct {
	Sink  string    `json:"sink"`
	Type  string    `json:"type,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Rate is in deliveries per second; the default is 1000, and 0 means no limit.
	Rate *int `json:"rate,omitempty"`
	// UpTo is the last offset, from a plan.
	UpTo int64 `json:"up_to,omitempty"`
}

const defaultRate = 1000

// planView is a plan as JSON. An action with the planned_at (or replay.up_to) and the count of a
// plan does at most what the plan has counted.
type planView struct {
	Action    string                `json:"action"`
	PlannedAt time.Time             `json:"planned_at,omitzero"`
	Count     int64                 `json:"count"`
	Counts    []store.ParkedCount   `json:"counts,omitempty"`
	Types     []admin.RerouteCount  `json:"types,omitempty"`
	Replay    *replayTask           `json:"replay,omitempty"`
	Log       *admin.ReplayView     `json:"log,omitempty"`
	Purge     []store.PersonalCount `json:"purge,omitempty"`
	Erase     *eraseView            `json:"erase,omitempty"`
	Examples  []admin.ParkedView    `json:"examples"`
	More      bool                  `json:"more,omitempty"` // there may be further deliveries of the filter's cause
}

// eraseView is what the outbox has of a person: see admin.ErasePlan.
type eraseView struct {
	Keys   int                   `json:"keys"`
	Counts []store.PersonalCount `json:"counts"`
	Plain  int64                 `json:"plain"`
	Source string                `json:"source,omitempty"`
}

// examples is how many examples a plan has.
const examples = 5

// plan counts what a task would change.
func (r *request) plan(ctx context.Context, a *admin.Admin, t task, plannedAt time.Time) (admin.Planned, error) {
	switch _, known := admin.Named(admin.OnDeliveries, t.Action); {
	case !known:
		return nil, problemOf(http.StatusBadRequest, "unknown action %q: use %s", t.Action, admin.Names(admin.OnDeliveries))
	case t.Action == "replay" && !t.has(t.Replay != nil):
		return nil, problemOf(http.StatusBadRequest, "a replay needs the member replay, and must have no filter")
	case t.Action == "purge" && (!t.has(t.Purge != nil) || !plannedAt.IsZero()):
		return nil, problemOf(http.StatusBadRequest, "a purge needs the member purge, and must have no filter and no planned_at")
	case t.Action == "purge":
		return a.Plan(ctx, admin.Task{Operation: t.Action, Purge: *t.Purge})
	case t.Action == "erase" && (!t.has(t.Erase != nil) || !plannedAt.IsZero()):
		return nil, problemOf(http.StatusBadRequest, "an erase needs the member erase, and must have no filter and no planned_at")
	case t.Action == "erase":
		keys, err := r.Keyring()
		if err != nil {
			return nil, err
		}
		return a.Plan(ctx, admin.Task{Operation: t.Action, Erase: admin.EraseRequest{Subject: t.Erase.Subject, Keys: keys}})
	case t.Action == "replay" && !plannedAt.IsZero():
		return nil, problemOf(http.StatusBadRequest, "use replay.up_to for a replay, and leave out planned_at")
	case t.Action != "replay" && !t.has(t.Filter != nil):
		return nil, problemOf(http.StatusBadRequest, "a %s needs the member filter ({} for all), and must have no replay", t.Action)
	case (t.Action == "replay" || t.Action == "reroute") && r.Routing.Routes == nil:
		return nil, problemOf(http.StatusConflict, "this process has no routes")
	}
	task := admin.Task{Operation: t.Action, Routes: r.Routing.Routes}
	if t.Replay != nil {
		var err error
		if task.Replay, err = r.replay(*t.Replay); err != nil {
			return nil, err
		}
		return a.Plan(ctx, task)
	}
	task.Filter = *t.Filter
	if !plannedAt.IsZero() {
		task.Filter.PlannedAt = plannedAt
	}
	return a.Plan(ctx, task)
}

func (r *request) replay(t replayTask) (admin.ReplayRequest, error) {
	if !isText(t.Sink) {
		return admin.ReplayRequest{}, problemOf(http.StatusBadRequest, "the sink has a NUL")
	}
	request := admin.ReplayRequest{Sink: t.Sink, Type: t.Type, Since: t.Since, Until: t.Until, Rate: defaultRate, UpTo: t.UpTo}
	if t.Rate != nil {
		request.Rate = *t.Rate
	}
	if request.Routed = r.Routing.Routes.Filter(t.Sink); request.Routed.None() && t.Sink != "" {
		return request, problemOf(http.StatusBadRequest, "no route leads to sink %q", t.Sink)
	}
	return request, nil
}

func makePlan(ctx context.Context, r *request) (any, error) {
	var body task
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	p, err := r.plan(ctx, r.Admin, body, time.Time{})
	if err != nil {
		return nil, err
	}
	view := planView{Action: body.Action, Count: p.Total()}
	var found []store.ParkedDelivery
	switch p := p.(type) {
	case *admin.Plan:
		view.PlannedAt, view.Counts, view.More = p.PlannedAt(), p.Counts, p.More
		if p.Types != nil {
			view.Types, view.Counts = p.Types, nil
		}
		found, err = p.Examples(ctx, examples)
	case *admin.ReplayPlan:
		log, pinned := p.View(), *body.Replay
		pinned.UpTo = p.UpTo
		view.Log, view.Replay = &log, &pinned
	case *admin.PurgePlan:
		view.Purge = p.Counts
	case *admin.ErasePlan:
		view.Erase = &eraseView{p.Keys, p.Counts, p.Plain, p.Source}
	}
	view.Examples = views(found)
	return view, err
}

// actionBody is the body of a request for an action.
type actionBody struct {
	task
	PlannedAt time.Time `json:"planned_at,omitzero"`
	// Expect is the count of the plan. The action is refused if it would exceed it.
	Expect *int64 `json:"expect"`
	Reason string `json:"reason,omitempty"`
}

// maxKey is the maximum length of an Idempotency-Key, in bytes.
const maxKey = 255

// key returns the Idempotency-Key; "" if the request has none.
func (r *request) key() (string, error) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxKey || !isText(key) {
		return "", problemOf(http.StatusBadRequest, "the Idempotency-Key is not valid text, or has more than %d bytes", maxKey)
	}
	return key, nil
}

// repeatable returns what acts for a request that can be repeated with its key, if its body is the same.
func (r *request) repeatable(body any, reason string) (*admin.Admin, error) {
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	if !isText(reason) {
		return nil, problemOf(http.StatusBadRequest, "the reason has a NUL")
	}
	text, err := json.Marshal(body)
	digest := sha256.Sum256(text)
	return r.Admin.For(admin.Request{Address: r.User.Address, Reason: reason, Key: key, Digest: hex.EncodeToString(digest[:])}), err
}

// withoutPerson returns a body whose digest says nothing about whom it names: the digest is recorded, and that of a name
// would confirm guesses.
func (r *request) withoutPerson(ctx context.Context, body actionBody) (actionBody, error) {
	if body.Erase == nil {
		return body, nil
	}
	keys, err := r.Keyring()
	if err != nil {
		return body, err
	}
	if err := keys.Prepare(ctx); err != nil { // without a root key all persons would have the same digest
		return body, err
	}
	subjects, err := keys.Subject(ctx, body.Erase.Subject)
	if err != nil {
		return body, err
	}
	body.Erase = &eraseTask{subjects[0]} // that of the oldest root key, which stays
	return body, nil
}

// begin starts an action. A second request with the same key gets the same action.
func begin(ctx context.Context, r *request) (any, error) {
	var body actionBody
	if err := r.decode(&body, false); err != nil {
		return nil, err
	}
	if body.Expect == nil || *body.Expect < 0 {
		return nil, problemOf(http.StatusBadRequest, "expect is missing: send the count of the plan, which the action must not exceed")
	}
	recorded, err := r.withoutPerson(ctx, body)
	if err != nil {
		return nil, err
	}
	a, err := r.repeatable(recorded, body.Reason)
	if err != nil {
		return nil, err
	}
	if action, found, err := a.Begun(ctx); found || err != nil {
		return accepted(action), err
	}
	p, err := r.plan(ctx, a, body.task, body.PlannedAt)
	if err != nil {
		return nil, err
	}
	if err := p.Expect(*body.Expect); err != nil {
		total, refused := p.Total(), problemOf(http.StatusConflict, "%s", err)
		refused.Count = &total
		return nil, refused
	}
	action, err := r.API.Acts.Start(ctx, p)
	if errors.Is(err, store.ErrActionBegun) { // by a simultaneous request with the same key
		action, _, err = a.Begun(ctx)
	}
	return accepted(action), err
}

func accepted(a store.Action) *reply {
	return &reply{status: http.StatusAccepted, location: "/api/v1/actions/" + url.PathEscape(a.ID), body: a}
}

func actions(ctx context.Context, r *request) (any, error) {
	limit, err := r.number("limit", pageRows, 1, maxPageRows)
	if err != nil {
		return nil, err
	}
	list, err := r.Admin.Actions(ctx, limit)
	return map[string]any{"actions": append([]store.Action{}, list...)}, err
}

func action(ctx context.Context, r *request) (any, error) {
	return answered(r.Admin.Action(ctx, r.PathValue("id")))
}

func cancel(ctx context.Context, r *request) (any, error) {
	id := r.PathValue("id")
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	return answered(r.Admin.Cancel(ctx, id))
}

// continueReplay continues an interrupted replay.
func continueReplay(ctx context.Context, r *request) (any, error) {
	id := r.PathValue("id")
	if err := r.decode(&struct{}{}, true); err != nil {
		return nil, err
	}
	now, err := r.Admin.Action(ctx, id)
	if err != nil {
		return nil, err
	}
	if now.State == store.ActionRunning {
		return nil, problemOf(http.StatusConflict, "action %s is running", id)
	}
	p, err := r.Admin.ContinueReplay(ctx, id)
	if err != nil {
		return nil, err
	}
	action, err := r.API.Acts.Start(ctx, p)
	return accepted(action), err
}

func answered[T any](answer T, err error) (any, error) { return answer, err }
