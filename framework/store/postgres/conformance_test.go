package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, postgres.Config{Receipts: true})
}

// TestConformanceOfAPartitionedLog has partitions so small that every fact crosses
// their borders, and reaches the default one.
func TestConformanceOfAPartitionedLog(t *testing.T) {
	t.Parallel()
	conform(t, postgres.Config{Receipts: true, PartitionRows: 2})
}

func conform(t *testing.T, config postgres.Config) {
	t.Helper()
	storetest.Run(t, storetest.Dialect{
		NewDB: func(t *testing.T) *sql.DB { return newDB(t) },
		Migrate: func(ctx context.Context, db *sql.DB) error {
			_, err := postgres.Migrate(ctx, db, config)
			return err
		},
		Open: func(ctx context.Context, db *sql.DB) (store.Store, error) { return postgres.Open(ctx, db, config) },
		Append: func(ctx context.Context, s store.Store, tx *sql.Tx, envelopes ...notification.Envelope) error {
			messages := make(message.Messages, len(envelopes))
			for i, e := range envelopes {
				messages[i] = store.NewMessage(e)
			}
			q, err := s.(*postgres.Store).SchemaAdapter().InsertQuery("outbox", messages)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, q.Query, q.Args...)
			return err
		},
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Slots:   true,
	})
}
