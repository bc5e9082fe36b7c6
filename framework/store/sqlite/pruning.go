package sqlite

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Prune removes old rows; see store.Pruner.
func (s *Store) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	pruned, err := s.run.Prune(ctx, p)
	if err != nil {
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", err)
	}
	return pruned, nil
}

// Kept reads the cursors and the log.
func (d *dialect) Kept(ctx context.Context, sinks []string) (tables.Kept, error) {
	return d.run.Kept(ctx, d.db, sinks)
}
