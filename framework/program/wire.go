//go:build wireinject

package program

import (
	"context"

	"github.com/google/wire"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
)

// newEngine makes an engine from a configuration. It waits for the database until ctx
// is done. The returned function closes the database.
func newEngine(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	panic(wire.Build(
		provideTables,
		database.Open,
		provideAwaitedStore,
		provideEngine,
	))
}

// newReplacement is newEngine without waiting for the database, since the previous engine
// still runs.
func newReplacement(ctx context.Context, c *config.Config, options config.Options) (*engine, func(), error) {
	panic(wire.Build(
		provideTables,
		database.Open,
		provideStore,
		provideEngine,
	))
}

// newMigration opens the database to create or upgrade the outbox in it.
func newMigration(source config.Source) (*database.Database, func(), error) {
	panic(wire.Build(config.LoadTables, database.Create))
}
