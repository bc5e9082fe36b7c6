package mysql

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// Prune removes old rows; see store.Pruner. In READ COMMITTED it locks only these rows.
func (s *Store) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	pruned, err := s.run.Prune(ctx, p)
	switch {
	case collides(err) || session.Refused(err, session.LockWait):
		return store.Pruned{Through: p.After}, nil // the next pass removes them
	case err != nil:
		return store.Pruned{}, fmt.Errorf("remove old rows of the log: %w", session.Advise(err))
	}
	return pruned, nil
}

// Kept reads the cursors and the log.
func (d *dialect) Kept(ctx context.Context, sinks []string) (tables.Kept, error) {
	return d.run.Kept(ctx, d.db, sinks)
}
