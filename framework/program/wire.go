//go:build wireinject

package program

import (
	"context"

	"github.com/google/wire"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
)

// newEngine makes the engine of everything that the configuration has. It
// waits for a database that is not there yet, until ctx is done. The function
// beside it closes the database.
func newEngine(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	panic(wire.Build(
		provideTables,
		database.Open,
		provideAwaitedStore,
		provideEngine,
	))
}

// newReplacement is newEngine without the waiting: a forwarder runs meanwhile.
func newReplacement(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	panic(wire.Build(
		provideTables,
		database.Open,
		provideStore,
		provideEngine,
	))
}

// newStore opens the outbox to look at it.
func newStore(ctx context.Context, source config.Source) (database.Store, func(), error) {
	panic(wire.Build(config.LoadTables, database.Open, provideStore))
}

// newMigration opens the database to make the outbox in it.
func newMigration(source config.Source) (*database.Database, func(), error) {
	panic(wire.Build(config.LoadTables, database.Create))
}

// newOperator opens the outbox for a person who acts on it. A configuration that has
// routes tells more; none is needed.
func newOperator(ctx context.Context, source config.Source, options config.Options, who operatorName) (*operator, func(), error) {
	panic(wire.Build(config.LoadRoutes, provideQuietTables, database.Open, provideStore, provideOperator))
}
