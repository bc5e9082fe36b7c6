// Package operate has the commands with which people look at an outbox and act on it.
package operate

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

// Commands makes the commands.
func Commands(p *command.Invocation) []*cobra.Command {
	return []*cobra.Command{
		newStatus(p), newTypes(p), newLog(p), newWhy(p), newTrace(p), newParked(p), newReplay(p), newExport(p), newPause(p), newResume(p), newActions(p), newForget(p), newSchedules(p), newEndpoints(p), newPrivacy(p),
	}
}

// operator is what the commands work with.
type operator struct {
	*admin.Admin
	routing admin.Routing
	store   admin.Store
	masks   map[string][]string
}

// newOperator opens the outbox for a person who inspects or changes it. Routes are used if the
// configuration has some. The returned function closes the database.
func newOperator(ctx context.Context, source config.Source, options config.Options, who string) (*operator, func(), error) {
	c, err := config.LoadRoutes(source, options)
	if err != nil {
		return nil, nil, err
	}
	t := c.Tables()
	t.Listen = false
	s, cleanup, err := openStore(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	routes, err := c.Table()
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return &operator{admin.New(s, who), command.RoutingOf(c, routes), s, c.Observe.Masks}, cleanup, nil
}

// openStore opens an existing outbox. The returned function closes the database.
func openStore(ctx context.Context, t config.Tables) (database.Store, func(), error) {
	d, cleanup, err := database.Open(t)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.Store(ctx)
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return s, cleanup, nil
}
