package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
	"github.com/waybill-go/waybill/cmd/waybill/internal/database"
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/kafka"
	processsink "github.com/waybill-go/waybill/sinks/process"
)

// The providers of wire.go: each makes one thing of others.

// provideKinds is the sink kinds that the program offers. A further one is a line
// here.
func provideKinds() (*sinks.Set, error) {
	set := new(sinks.Set)
	return set, errors.Join(
		email.Register(set),
		httpsink.Register(set),
		jsonlines.Register(set),
		kafka.Register(set),
		processsink.Register(set),
	)
}

func provideTables(c *config.Config) config.Tables { return c.Tables() }

func provideStore(ctx context.Context, d *database.Database) (database.Store, error) {
	return d.Store(ctx)
}

// provideQuietTables is for those who listen to nothing.
func provideQuietTables(c *config.Config) config.Tables {
	t := c.Tables()
	t.Listen = false
	return t
}

// operator is what commands for people on call are made of.
type operator struct {
	*admin.Admin
	routing admin.Routing
}

func provideOperator(c *config.Config, s database.Store, who operatorName) (*operator, error) {
	o := &operator{Admin: admin.New(s, string(who))}
	var err error
	if o.routing.Routes, err = c.Table(); o.routing.Routes != nil {
		o.routing.MaxAttempts = c.MaxAttempts
	}
	return o, err
}

// provideAwaitedStore waits for a database that is not there yet.
func provideAwaitedStore(ctx context.Context, d *database.Database, logger *slog.Logger) (database.Store, error) {
	return d.Await(ctx, logger)
}

func provideEngine(c *config.Config, s database.Store, logger *slog.Logger) (*engine, error) {
	f, err := forwarder.New(c.ForwarderConfig(s, logger))
	if err != nil {
		return nil, err
	}
	return &engine{Forwarder: f, config: c}, nil
}
