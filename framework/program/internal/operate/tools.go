package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/tool"
	"github.com/waybill-go/waybill/framework/store"
)

// Tools are the commands of this package as tools for assistants. They share one database, which
// the first call that can open it opens. They are safe for concurrent use.
type Tools struct {
	looking
	cmd *cobra.Command

	mu    sync.Mutex
	o     *operator
	close func()
}

// NewTools makes the tools. The command has the flags of l, and actions are recorded under by, or
// else the user of this machine. The caller closes them.
func NewTools(l command.Looking, cmd *cobra.Command, by string) *Tools {
	return &Tools{looking: looking{l, cmp.Or(by, defaultOperator()) + " (mcp)"}, cmd: cmd, close: func() {}}
}

// Close closes the database.
func (t *Tools) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close()
}

// AddTo adds the tools to a server, those that change something only if acts is set.
func (t *Tools) AddTo(s *mcp.Server, acts bool) {
	add(t, s, "status", tool.Kind{}, "Show the cursors and pending counts of each sink, what is parked, what is wrong (troubles), and the running forwarders, as waybill status.", t.status)
	add(t, s, "why", tool.Kind{}, "Explain where a notification, or the latest ones of a key, are at each sink and why, as waybill why. Give id or key.", t.why)
	add(t, s, "parked", tool.Kind{}, "List parked deliveries with their last errors and attempts, or with by_cause groups of failed ones, as waybill parked list and causes. Payloads are left out.", t.parked)
	add(t, s, "log", tool.Kind{}, "List notifications in the log, newest first, with their state at each sink, as waybill log. Payloads are left out.", t.log)
	add(t, s, "types", tool.Kind{}, "List the notification types with their versions, counts and the sinks that they go to, as waybill types.", t.types)
	if !acts {
		return
	}
	add(t, s, "plan", tool.Kind{}, "Count what an operation would change, and change nothing. Pass the operation, the same arguments, and the count and planned_at of the answer to act.", t.plan)
	add(t, s, "act", tool.Kind{Changes: true}, "Do a planned operation: requeue, discard, skip or reroute parked deliveries, pause or resume a sink. Refused if it would change another number than count. Discard and skip cannot be undone.", t.act)
}

// add adds a tool that gets the operator.
func add[In any](t *Tools, s *mcp.Server, name string, kind tool.Kind, about string, do func(context.Context, *operator, In) (any, error)) {
	tool.Add(s, name, about, kind, func(ctx context.Context, in In) (any, error) {
		o, err := t.operator()
		if err != nil {
			return nil, err
		}
		return do(ctx, o, in)
	})
}

// operator opens the database unless it is open.
func (t *Tools) operator() (*operator, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.o == nil {
		o, cleanup, err := t.open(t.cmd)
		if err != nil {
			return nil, err
		}
		o.Admin = admin.New(dashboard.Masked(o.store, o.routing, o.masks), t.by)
		t.o, t.close = o, cleanup
	}
	return t.o, nil
}

type statusArguments struct {
	Sink string `json:"sink,omitempty" jsonschema:"show the cursors and parked counts of this sink only"`
}

func (t *Tools) status(ctx context.Context, o *operator, in statusArguments) (any, error) {
	found, err := o.Status(ctx, o.routing.Routes)
	if in.Sink != "" {
		found.Cursors = slices.DeleteFunc(found.Cursors, func(c store.CursorStatus) bool { return c.Sink != in.Sink })
		found.Parked = slices.DeleteFunc(found.Parked, func(c store.ParkedCount) bool { return c.Sink != in.Sink })
	}
	return found, err
}

type whyArguments struct {
	ID     string `json:"id,omitempty" jsonschema:"the id of a notification"`
	Key    string `json:"key,omitempty" jsonschema:"instead of an id: a key"`
	Type   string `json:"type,omitempty" jsonschema:"with key: only this type, or types with a prefix (order.*)"`
	Before int64  `json:"before,omitempty" jsonschema:"with key: the offset before which to search, as next of an answer"`
	Limit  int    `json:"limit,omitempty" jsonschema:"with key: how many notifications, 1 to 20 (default 5)"`
}

func (t *Tools) why(ctx context.Context, o *operator, in whyArguments) (any, error) {
	limit, err := tool.Limit("limit", in.Limit, 5, 20)
	switch {
	case err != nil:
		return nil, err
	case (in.ID == "") == (in.Key == ""):
		return nil, errors.New("id or key: give one of them")
	case in.Before < 0:
		return nil, fmt.Errorf("before is %d: use an offset of at least 1", in.Before)
	case in.ID != "" && (in.Type != "" || in.Before != 0 || in.Limit != 0):
		return nil, errors.New("type, before and limit need key: leave them out with an id")
	case in.ID != "":
		return o.Why(ctx, in.ID, o.routing)
	}
	return o.WhyKey(ctx, admin.LogFilter{Key: in.Key, Type: in.Type}, in.Before, limit, o.routing)
}

// selecting are the arguments that select parked deliveries.
type selecting struct {
	Sink      string            `json:"sink,omitempty" jsonschema:"deliveries to this sink"`
	ID        string            `json:"id,omitempty" jsonschema:"deliveries of the notification with this id"`
	Type      string            `json:"type,omitempty" jsonschema:"deliveries of this type, or of types with a prefix (order.*)"`
	Key       string            `json:"key,omitempty" jsonschema:"deliveries of this key"`
	Group     string            `json:"group,omitempty" jsonschema:"deliveries that their sink collects in this group"`
	States    []store.State     `json:"states,omitempty" jsonschema:"deliveries in these states: retrying, scheduled, blocked, quiet, dead, settling, collecting, cancelled"`
	Metadata  map[string]string `json:"metadata,omitempty" jsonschema:"deliveries with this metadata"`
	OlderThan string            `json:"older_than,omitempty" jsonschema:"first parked longer ago than this, such as 90m or 7d"`
	NewerThan string            `json:"newer_than,omitempty" jsonschema:"first parked not longer ago than this, such as 90m or 7d"`
	Error     string            `json:"error,omitempty" jsonschema:"deliveries whose last error contains this text"`
	Cause     string            `json:"cause,omitempty" jsonschema:"deliveries that failed for this cause, as by_cause of parked names it"`
}

func (s *selecting) filter() (admin.Filter, error) {
	f := admin.Filter{Sink: s.Sink, ID: s.ID, Type: s.Type, Key: s.Key, Group: s.Group, States: s.States, Metadata: s.Metadata, Error: s.Error, Cause: s.Cause}
	var older, newer ageFlag
	if err := errors.Join(parse("older_than", s.OlderThan, &older), parse("newer_than", s.NewerThan, &newer)); err != nil {
		return f, err
	}
	f.OlderThan, f.NewerThan = older.Duration, newer.Duration
	return f, f.Validate()
}

// parse reads a text as a flag does, unless it is empty.
func parse(name, text string, into interface{ Set(string) error }) error {
	if text == "" {
		return nil
	}
	if err := into.Set(text); err != nil {
		return fmt.Errorf("%s is %q: %w", name, text, err)
	}
	return nil
}

type parkedArguments struct {
	selecting
	ByCause bool `json:"by_cause,omitempty" jsonschema:"group what failed by its cause, instead of listing deliveries"`
	Limit   int  `json:"limit,omitempty" jsonschema:"how many deliveries or causes, 1 to 100 (default 20)"`
}

func (t *Tools) parked(ctx context.Context, o *operator, in parkedArguments) (any, error) {
	limit, err := tool.Limit("limit", in.Limit, 20, 100)
	if err != nil {
		return nil, err
	}
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if !in.ByCause {
		found, err := (&parkedList{limit: limit}).find(ctx, o, filter)
		return found.View, err
	}
	causes, err := o.causes(ctx, filter)
	if len(causes.Causes) > limit {
		causes.Causes, causes.More = causes.Causes[:limit], true
	}
	return causes, err
}

type logArguments struct {
	ID     string `json:"id,omitempty" jsonschema:"the notification with this id"`
	Type   string `json:"type,omitempty" jsonschema:"this type, or types with a prefix (order.*)"`
	Key    string `json:"key,omitempty" jsonschema:"notifications of this key"`
	Since  string `json:"since,omitempty" jsonschema:"what occurred at this time or later: a time, or an age such as 90m or 7d"`
	Until  string `json:"until,omitempty" jsonschema:"what occurred before this time"`
	Before int64  `json:"before,omitempty" jsonschema:"the offset before which to search, as next of an answer"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many notifications, 1 to 100 (default 20)"`
}

func (t *Tools) log(ctx context.Context, o *operator, in logArguments) (any, error) {
	limit, err := tool.Limit("limit", in.Limit, usuallyLogged, 100)
	var since, until momentFlag
	if err = errors.Join(err, parse("since", in.Since, &since), parse("until", in.Until, &until)); err != nil {
		return nil, err
	}
	if in.Before < 0 {
		return nil, fmt.Errorf("before is %d: use an offset of at least 1", in.Before)
	}
	filter := admin.LogFilter{ID: in.ID, Type: in.Type, Key: in.Key, Since: since.Time, Until: until.Time}
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	return o.Log(ctx, filter, in.Before, limit, o.routing)
}

type typesArguments struct {
	Rows  int `json:"rows,omitempty" jsonschema:"how many of the last rows of the log, and of parked deliveries, to search, 1 to 1000000 (default 100000)"`
	Limit int `json:"limit,omitempty" jsonschema:"how many types, 1 to 500 (default 100)"`
}

func (t *Tools) types(ctx context.Context, o *operator, in typesArguments) (any, error) {
	limit, err := tool.Limit("limit", in.Limit, 100, 500)
	if err != nil {
		return nil, err
	}
	rows, err := tool.Limit("rows", in.Rows, 100_000, 1_000_000)
	if err != nil {
		return nil, err
	}
	found, err := o.listTypes(ctx, rows, t.Options.Types)
	if err != nil {
		return nil, err
	}
	return struct {
		Types []admin.Type `json:"types"`
		More  bool         `json:"more,omitempty"`
	}{append([]admin.Type{}, found[:min(limit, len(found))]...), len(found) > limit}, nil
}

// planning are the arguments of plan and act that say what to do.
type planning struct {
	selecting
	Operation string `json:"operation" jsonschema:"requeue, discard, skip, reroute, pause or resume; pause and resume take a sink and no other selection"`
	All       bool   `json:"all,omitempty" jsonschema:"select all deliveries, instead of the other arguments"`
}

// planView is the answer of the tool plan.
type planView struct {
	Operation string `json:"operation"`
	About     string `json:"about,omitempty"`
	Count     int64  `json:"count"`
	// PlannedAt keeps out of act what is parked or changed after the plan.
	PlannedAt time.Time            `json:"planned_at,omitzero"`
	Counts    []store.ParkedCount  `json:"counts,omitempty"`
	Types     []admin.RerouteCount `json:"types,omitempty"`
	// More says that there may be further deliveries of the same cause.
	More bool `json:"more,omitempty"`
}

func (t *Tools) plan(ctx context.Context, o *operator, in planning) (any, error) {
	view, _, err := prepare(ctx, o, &in, time.Time{})
	return view, err
}

type actArguments struct {
	planning
	Count     int64  `json:"count" jsonschema:"the count that plan has answered with"`
	PlannedAt string `json:"planned_at,omitempty" jsonschema:"the planned_at that plan has answered with; pause and resume have none"`
	Reason    string `json:"reason,omitempty" jsonschema:"why, recorded with the action"`
}

// reasonBytes bounds a reason.
const reasonBytes = 500

func (t *Tools) act(ctx context.Context, o *operator, in actArguments) (any, error) {
	if strings.ContainsRune(in.Reason, 0) || len(in.Reason) > reasonBytes {
		return nil, fmt.Errorf("reason has more than %d bytes, or a NUL: say it in short words", reasonBytes)
	}
	at, err := time.Parse(time.RFC3339Nano, in.PlannedAt)
	if _, onSink := admin.Named(admin.OnSinks, in.Operation); (err != nil || at.After(time.Now().Add(time.Hour))) && !onSink {
		return nil, fmt.Errorf("planned_at is %q: call plan first, and pass the planned_at that it answers with", in.PlannedAt)
	}
	view, run, err := prepare(ctx, &operator{Admin: o.For(admin.Request{Reason: in.Reason}), routing: o.routing}, &in.planning, at)
	if err != nil {
		return nil, err
	}
	if view.Count != in.Count {
		return nil, fmt.Errorf("count is %d, but this would %s %d now: nothing was done; call plan again", in.Count, in.Operation, view.Count)
	}
	return run(ctx)
}

// prepare plans an operation. With the time of an earlier plan, it leaves out what was parked or
// changed since.
func prepare(ctx context.Context, o *operator, in *planning, at time.Time) (view planView, run func(context.Context) (any, error), err error) {
	filter, err := in.filter()
	if err != nil {
		return view, nil, err
	}
	if operation, onSink := admin.Named(admin.OnSinks, in.Operation); onSink {
		return pausingOf(ctx, o, operation, in, filter)
	}
	operation, known := admin.Named(admin.OnDeliveries, in.Operation)
	empty := isEmpty(filter)
	switch {
	case !known || slices.Contains([]string{"replay", "purge", "erase"}, operation.Name):
		return view, nil, fmt.Errorf("operation is %q: use requeue, discard, skip, reroute, pause or resume", in.Operation)
	case operation.Name == "reroute" && o.routing.Routes == nil:
		return view, nil, errors.New("operation reroute needs routes: start the server with -c and a configuration that has some")
	case empty && !in.All && operation.Name != "reroute":
		return view, nil, errors.New("all is missing: select deliveries, such as with sink, or set all")
	case !empty && in.All:
		return view, nil, errors.New("all contradicts the other arguments that select deliveries: leave one of them out")
	}
	filter.PlannedAt = at
	planned, err := o.Plan(ctx, admin.Task{Operation: operation.Name, Filter: filter, Routes: o.routing.Routes})
	if err != nil {
		return view, nil, err
	}
	view = planView{Operation: operation.Name, About: operation.About, Count: planned.Total()}
	if p, is := planned.(*admin.Plan); is {
		view.PlannedAt, view.Counts, view.Types, view.More = p.PlannedAt(), p.Counts, p.Types, p.More
	}
	return view, func(ctx context.Context) (any, error) {
		action, err := planned.Run(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%s %d of %d, then stopped; %s: %w", operation.Done, action.Count, planned.Total(), again(action), err)
		}
		return action, nil
	}, nil
}

// pausingOf plans to pause or resume one sink.
func pausingOf(ctx context.Context, o *operator, operation admin.Operation, in *planning, filter admin.Filter) (view planView, run func(context.Context) (any, error), err error) {
	filter.Sink = ""
	if in.Sink == "" || in.All || !isEmpty(filter) {
		return view, nil, fmt.Errorf("sink: to %s, name one sink and nothing else", operation.Name)
	}
	sinks, err := o.Sinks(ctx)
	if err != nil {
		return view, nil, err
	}
	at := slices.IndexFunc(sinks, func(s admin.SinkStatus) bool { return s.Sink == in.Sink })
	if at < 0 {
		return view, nil, fmt.Errorf("sink is %q, which has no cursors: the tool status shows the sinks", in.Sink)
	}
	view = planView{Operation: operation.Name, About: operation.About}
	if sinks[at].Paused == (operation.Name == "resume") {
		view.Count = 1
	}
	return view, func(ctx context.Context) (any, error) {
		changed, err := o.Do(ctx, operation, in.Sink)
		return map[string][]string{operation.Done: append([]string{}, changed...)}, err
	}, nil
}
