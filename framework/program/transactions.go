package program

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// onceFunctions is a sink of functions that work in transactions of the outbox's database. The forwarder gives
// it the outbox, since a configuration builds its sinks before a database is opened.
type onceFunctions struct {
	sinks.Sink // checks the functions, and calls them without a transaction: only Open and HandledTypes are used
	types      *registry.Registry
	handlers   []function.Handler

	mu    sync.Mutex
	store forwarder.Store
	once  sinks.Sink // in transactions of the store
}

var (
	_ forwarder.Resident = (*onceFunctions)(nil)
	_ sinks.Opener       = (*onceFunctions)(nil)
	_ sinks.Typed        = (*onceFunctions)(nil)
	_ sinks.Noter        = (*onceFunctions)(nil)
)

// inDatabase is what the sink needs from a store.
type inDatabase interface {
	store.Inbox
	Handle() *sql.DB
}

func (f *onceFunctions) Reside(database string, s forwarder.Store, _ *privacy.Keyring) (forwarder.Hooks, error) {
	in, able := s.(inDatabase)
	if !able || database != "" {
		return forwarder.Hooks{}, fmt.Errorf("%w: functions in a transaction work with a single database; with several, "+
			"supply them with Functions", forwarder.ErrConfig)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != s {
		f.store, f.once = s, inbox.Mux(inbox.Config{Inbox: inbox.New(in), DB: in.Handle()}, f.types, f.handlers...)
	}
	return forwarder.Hooks{}, nil
}

func (f *onceFunctions) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	f.mu.Lock()
	once := f.once
	f.mu.Unlock()
	if once == nil {
		return "", sinks.Unavailable(fmt.Errorf("%w: no forwarder has given the sink its outbox", inbox.ErrConfig))
	}
	return once.Deliver(ctx, d)
}

func (f *onceFunctions) Open(ctx context.Context) error { return f.Sink.(sinks.Opener).Open(ctx) }

func (f *onceFunctions) HandledTypes() ([]sinks.HandledType, error) {
	return f.Sink.(sinks.Typed).HandledTypes()
}

func (f *onceFunctions) NotesIDs() bool                                  { return true }
func (f *onceFunctions) RevealsPrivate() bool                            { return true }
func (f *onceFunctions) OwnTypes() []string                              { return nil }
func (f *onceFunctions) Defaults(settings forwarder.Sink) forwarder.Sink { return settings }
