package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Request is recorded with the action that a request begins, in addition to who made it. The
// zero value adds nothing.
type Request struct {
	// Address is where the request comes from, and Reason why it is made.
	Address, Reason string
	// Key identifies the request. The requester chooses it, so that the request can be
	// repeated if its response was lost: it begins at most one action, over all processes.
	// Repeats fail with store.ErrActionBegun; see Begun. "" means no key.
	Key string
	// Digest is a digest of the request's content, so that a key cannot be reused for another.
	Digest string
}

// For returns an Admin for one request of the same person.
func (a *Admin) For(r Request) *Admin {
	return &Admin{store: a.store, who: a.who, request: r}
}

// Begun returns the action that an earlier request with this key has begun; found is false if
// there is none, or if the request has no key. It fails with ErrKeyUsed if the earlier request
// had another digest.
func (a *Admin) Begun(ctx context.Context) (action store.Action, found bool, err error) {
	if a.request.Key == "" {
		return store.Action{}, false, nil
	}
	action, err = a.store.Action(ctx, a.newID())
	switch {
	case errors.Is(err, store.ErrUnknownAction):
		return store.Action{}, false, nil
	case err == nil && action.Request != a.request.Digest:
		err = fmt.Errorf("%w: action %s", ErrKeyUsed, action.ID)
	}
	return action, err == nil, err
}

// Action returns an action by its id. It fails with store.ErrUnknownAction if there is none.
func (a *Admin) Action(ctx context.Context, id string) (store.Action, error) {
	return a.store.Action(ctx, id)
}

// Actions lists the latest actions, newest first.
func (a *Admin) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	return a.store.Actions(ctx, limit)
}

// Cancel stops an action, after the batch that is being committed. Any process may call it.
// What was done stays. A cancelled replay cannot be continued. It fails with
// store.ErrActionEnded if the action has ended or was already cancelled.
func (a *Admin) Cancel(ctx context.Context, id string) (store.Action, error) {
	if err := a.store.CancelAction(ctx, id, a.who); err != nil {
		return store.Action{}, err
	}
	return a.store.Action(ctx, id)
}

// newID returns the id of a new action: always the same for one person and key.
func (a *Admin) newID() string {
	if a.request.Key == "" {
		return notification.NewID()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("waybill:"+a.who+"\x00"+a.request.Key)).String()
}

// begin records that an action begins.
func (a *Admin) begin(ctx context.Context, name string, filter any, planned int64) (store.Action, error) {
	return a.beginAfter(ctx, name, filter, planned, 0)
}

// beginAfter is begin for an action that begins after an offset.
func (a *Admin) beginAfter(ctx context.Context, name string, filter any, planned, after int64) (store.Action, error) {
	raw, err := json.Marshal(filter)
	if err != nil {
		return store.Action{}, err
	}
	now := time.Now().UTC()
	action := store.Action{
		ID: a.newID(), At: now, Who: a.who, Address: a.request.Address, Reason: a.request.Reason, Name: name, Filter: raw,
		Request: a.request.Digest, Planned: planned, Through: after, State: store.ActionRunning, UpdatedAt: now,
	}
	return action, a.store.Begin(ctx, action)
}

// end records that an action has ended.
func (a *Admin) end(ctx context.Context, action *store.Action) error {
	if err := a.store.End(ctx, action.ID); err != nil {
		return err
	}
	*action = a.asRecorded(ctx, *action)
	return nil
}

// lastLook bounds the time to read what an interrupted batch has done.
const lastLook = 5 * time.Second

// stopped handles the error of an action. If a person has cancelled the action, it records its
// end. It returns the action as recorded, even if ctx is done, since the result of the last
// batch is not known here.
func (a *Admin) stopped(ctx context.Context, action store.Action, why error) (store.Action, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	if errors.Is(why, store.ErrActionCancelled) {
		if err := a.end(ctx, &action); err == nil {
			return action, why
		}
	}
	return a.asRecorded(ctx, action), why
}

func (a *Admin) asRecorded(ctx context.Context, action store.Action) store.Action {
	if recorded, err := a.store.Action(ctx, action.ID); err == nil {
		return recorded
	}
	return action
}

// Record records an action around do, which does it outside of the tables of this package, such as a change
// of a customer's endpoint. about is what it is about, as JSON. An error of do leaves the action without an end.
func (a *Admin) Record(ctx context.Context, name string, about any, do func() error) error {
	action, err := a.begin(ctx, name, about, 0)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return a.end(ctx, &action)
}
