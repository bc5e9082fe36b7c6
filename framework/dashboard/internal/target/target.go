// Package target holds the outbox that a dashboard shows.
package target

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Target is an outbox to show. All fields except Store are optional; without one, the pages omit
// what depends on it.
type Target struct {
	// Store is required.
	Store admin.Store
	// Routing has the routes: which sinks get which types.
	Routing admin.Routing
	// Forwarder is the forwarder of this process.
	Forwarder *forwarder.Forwarder
	// Database is the name of the outbox's database, if the forwarder has several.
	Database string
	// Types are the types that the program has registered.
	Types *registry.Registry
	// Contracts returns the contracts of types; with an error, those that there are.
	Contracts func() (*contract.Set, error)
	// Channels are how consumers get the notifications of each sink, by the sink's name.
	Channels map[string]sinks.Channel
	// Endpoints manages customers' endpoints; nil if no sink is of kind webhooks.
	Endpoints *webhooks.Endpoints
	// Privacy finds and erases the private values of persons, if it has a master key.
	Privacy privacy.Config
	// Doctor runs the checks with these ids, or all if none is given.
	Doctor func(ctx context.Context, only ...string) []doctor.Finding
	// Configuration returns the configuration in effect, as YAML without secrets.
	Configuration func() ([]byte, error)
}

// Keyring returns what finds the keys of persons in the outbox. It fails with privacy.ErrMaster if no master key is
// configured.
func (t *Target) Keyring() (*privacy.Keyring, error) {
	if t.Privacy.Master == nil {
		return nil, fmt.Errorf("%w: privacy.keys or privacy.master is not configured", privacy.ErrMaster)
	}
	return privacy.New(t.Store, t.Privacy)
}

// ContractOf returns the contract of a type's version, which is by default the one that is published, and all
// versions of the type, the oldest first; none if there is no contract. typ may be an alias.
func ContractOf(t *Target, typ string, version int) (shown *contract.Contract, all []*contract.Contract) {
	if t.Contracts == nil {
		return nil, nil
	}
	set, _ := t.Contracts() // the set has the reasons
	for _, c := range set.All() {
		if its, ok := set.Of(typ, c.Version); !ok || its != c {
			continue
		}
		all = append(all, c)
		if c.Version == version || version == 0 {
			shown = c
		}
	}
	return shown, all
}

// ErrNone means that there is no outbox to show yet, since its database has not been reached.
var ErrNone = errors.New("the database has not been reached yet")

// Current holds the target that is shown now. The zero value holds none. It is safe for concurrent
// use.
type Current struct {
	mu     sync.Mutex
	target *Target
}

// Show replaces the target that is shown. release ends this, unless another target is shown by
// then.
func (c *Current) Show(t Target) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = &t
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.target == &t {
			c.target = nil
		}
	}
}

// Get returns the target that is shown, or ErrNone.
func (c *Current) Get() (*Target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.target == nil {
		return nil, ErrNone
	}
	return c.target, nil
}
