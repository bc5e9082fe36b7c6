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

// Request is what is recorded with the action of one request, beside who makes it. The
// zero value adds nothing.
type Request struct {
	// Address is from where it comes, and Reason why it is made.
	Address, Reason string
	// Key is one that the requester has chosen for it, so that it can be repeated where its
	// answer was lost: it begins one action at most, in all processes together.
	// store.ErrActionBegun for the others; see Begun. "" is no key.
	Key string
	// Digest is that of what is asked for, so that a key cannot be used for something else.
	Digest string
}

// For returns an Admin for one request of the same person.
func (a *Admin) For(r Request) *Admin {
	return &Admin{store: a.store, who: a.who, request: r}
}

// Begun returns the action that a request with this key has begun before; found is false if
// there is none, or the request has no key. ErrKeyUsed: that request had another digest.
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

// Action returns one by its id; store.ErrUnknownAction if there is none.
func (a *Admin) Action(ctx context.Context, id string) (store.Action, error) {
	return a.store.Action(ctx, id)
}

// Actions lists the latest actions, newest first.
func (a *Admin) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	return a.store.Actions(ctx, limit)
}

// Cancel ends an action, in whatever process it runs: it does nothing more, behind the batch
// that is being committed. What was done stays. A replay that was cancelled cannot be
// continued. store.ErrActionEnded if it has ended or was cancelled before.
func (a *Admin) Cancel(ctx context.Context, id string) (store.Action, error) {
	if err := a.store.CancelAction(ctx, id, a.who); err != nil {
		return store.Action{}, err
	}
	return a.store.Action(ctx, id)
}

// newID is the id of an action to begin: the same one for a person and a key.
func (a *Admin) newID() string {
	if a.request.Key == "" {
		return notification.NewID()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("waybill:"+a.who+"\x00"+a.request.Key)).String()
}

// begin records that an action begins.
func (a *Admin) begin(ctx context.Context, name string, filter any, planned int64) (store.Action, error) {
	raw, err := json.Marshal(filter)
	if err != nil {
		return store.Action{}, err
	}
	now := time.Now().UTC()
	action := store.Action{
		ID: a.newID(), At: now, Who: a.who, Address: a.request.Address, Reason: a.request.Reason, Name: name, Filter: raw,
		Request: a.request.Digest, Planned: planned, State: store.ActionRunning, UpdatedAt: now,
	}
	return action, a.store.Begin(ctx, action)
}

// end records that an action does nothing more.
func (a *Admin) end(ctx context.Context, action *store.Action) error {
	if err := a.store.End(ctx, action.ID); err != nil {
		return err
	}
	*action = a.asRecorded(ctx, *action)
	return nil
}

// lastLook is how long it may take to learn what became of an interrupted batch.
const lastLook = 5 * time.Second

// stopped ends an action that met an error: where a person has cancelled it, that is
// recorded as its end. It returns the action as the table has it, also where ctx is done: what
// became of the last batch is not known here.
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
