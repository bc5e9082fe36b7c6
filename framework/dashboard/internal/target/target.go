// Package target holds the outbox that a dashboard shows.
package target

import (
	"context"
	"errors"
	"sync"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Target is an outbox to show. All but Store may be left out: what depends on it is not shown.
type Target struct {
	// Store is required.
	Store Store
	// Routing says which sinks get which types.
	Routing admin.Routing
	// Forwarder is the one of this process.
	Forwarder *forwarder.Forwarder
	// Database is the name of the outbox's database, if the forwarder has several.
	Database string
	// Types are those that the program has registered.
	Types *registry.Registry
	// Doctor makes the checks with these ids, or all if there are none.
	Doctor func(ctx context.Context, only ...string) []doctor.Finding
	// Configuration is the one in effect, as YAML without secrets.
	Configuration func() ([]byte, error)
}

// Store is what a dashboard needs of an outbox. The stores of this module have it.
type Store interface {
	admin.Store
	store.Sampler
}

// ErrNone: there is no outbox to show yet, since its database has not been reached.
var ErrNone = errors.New("the database has not been reached yet")

// Current is the target that is shown now. The zero value shows none. It is safe for
// concurrent use.
type Current struct {
	mu     sync.Mutex
	target *Target
}

// Show makes a target the one that is shown, in place of the one before. release ends that,
// unless another one is shown by then.
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
