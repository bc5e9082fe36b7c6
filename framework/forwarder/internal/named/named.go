// Package named adds the name of its database to a store's lanes, and to all envelopes it reads,
// as the metadata [notification.MetadataDatabase]. So a forwarder of several databases can
// distinguish them in its sinks.
package named

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Store is the store to name.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
}

// Named is a store with the name of its database.
type Named struct {
	Store
	name string
	bare notification.Metadata // for envelopes without metadata
}

var (
	_ Store         = (*Named)(nil)
	_ store.Sourced = (*Named)(nil)
)

// New returns a store with a name.
func New(s Store, name string) *Named {
	return &Named{Store: s, name: name, bare: notification.Metadata{notification.MetadataDatabase: name}}
}

// Source implements store.Sourced.
func (n *Named) Source() store.Source { return store.SourceOf(n.Store) }

// Membership implements store.Leases.
func (n *Named) Membership(ctx context.Context) (store.Membership, error) {
	m, err := n.Store.Membership(ctx)
	for i := range m.Lanes {
		m.Lanes[i].Lane.Database = n.name
	}
	return m, err
}

// Acquire implements store.Leases.
func (n *Named) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := n.Store.Acquire(ctx, lane, owner, ttl)
	lease.Lane.Database = n.name
	return lease, err
}

// NewReader implements store.Log.
func (n *Named) NewReader(position json.RawMessage, filter store.Filter) (store.Reader, error) {
	r, err := n.Store.NewReader(position, filter)
	if err != nil {
		return nil, err
	}
	if looks, ok := r.(store.Looker); ok {
		return looker{reader{r, n}, looks}, nil
	}
	return reader{r, n}, nil
}

type reader struct {
	store.Reader
	named *Named
}

// Next implements store.Reader.
func (r reader) Next(ctx context.Context, target store.Target, limit int) (store.Page, error) {
	page, err := r.Reader.Next(ctx, target, limit)
	stamp := r.named.stamp()
	for i := range page.Envelopes {
		stamp(&page.Envelopes[i])
	}
	return page, err
}

type looker struct {
	reader
	looks store.Looker
}

var _ store.Looker = looker{}

// Look implements store.Looker.
func (l looker) Look(ctx context.Context) (store.Target, error) { return l.looks.Look(ctx) }

// Due implements store.Deliveries.
func (n *Named) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	due, next, err := n.Store.Due(ctx, q)
	n.stampParked(due)
	return due, next, err
}

// Followers implements store.Deliveries.
func (n *Named) Followers(ctx context.Context, lane store.Lane, keys []string, halt bool, limit int) ([]store.Parked, int, error) {
	parked, answered, err := n.Store.Followers(ctx, lane, keys, halt, limit)
	n.stampParked(parked)
	return parked, answered, err
}

func (n *Named) stampParked(all []store.Parked) {
	stamp := n.stamp()
	for i := range all {
		stamp(&all[i].Envelope)
	}
}

// stamp returns a function that adds the name to the metadata of rows. Rows that share the same
// metadata share the result too.
func (n *Named) stamp() func(e *notification.Envelope) {
	stamped := make(map[uintptr]notification.Metadata)
	return func(e *notification.Envelope) {
		if len(e.Metadata) == 0 {
			e.Metadata = n.bare
			return
		}
		from := reflect.ValueOf(e.Metadata).Pointer()
		m, ok := stamped[from]
		if !ok {
			m = e.Metadata.Clone()
			m[notification.MetadataDatabase] = n.name
			stamped[from] = m
		}
		e.Metadata = m
	}
}

// Error is an error of one database of several.
type Error struct {
	Database string
	Err      error
}

func (e *Error) Error() string { return fmt.Sprintf("database %s: %v", e.Database, e.Err) }
func (e *Error) Unwrap() error { return e.Err }
