package drivers

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/waybillpgx"
	"github.com/waybill-go/waybill/framework/waybillpgx/pgxbatch"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

func TestTheBlocksOfTheGuideAreInItsTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/publishing.md")
	require.NoError(t, err)
	code := ""
	for _, name := range []string{"guide_test.go", "guideent_test.go"} {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		code += unindented(string(file))
	}
	blocks := goBlock.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, code, unindented(block[1]))
	}
}

func unindented(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

func TestTheBlocksOfTheGuidePublish(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	ctx := t.Context()
	for _, publish := range []func() error{
		func() error { return guideSQL(ctx, s.publisher, s.db) },
		func() error { return guideSQLByHand(ctx, s.publisher, s.db) },
		func() error { return guidePgx(ctx, s.publisher, s.pool) },
		func() error { return guidePgxBatch(ctx, s.publisher, s.pool) },
		func() error { return guideSqlx(ctx, s.publisher, sqlx.NewDb(s.db, "pgx")) },
		func() error { return guideGorm(ctx, s.publisher, s.db) },
		func() error { return guideBun(ctx, s.publisher, bun.NewDB(s.db, pgdialect.New())) },
		func() error { return guideOptions(ctx, s.publisher, s.db) },
		func() error { return guideAppend(ctx, s.publisher, s.db) },
	} {
		before := s.wakes.Load()
		require.NoError(t, publish())
		require.Equal(t, before+1, s.wakes.Load())
	}
	calls := 0
	require.ErrorIs(t, guideRetries(ctx, s.publisher, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if calls++; calls == 1 {
			_, err := tx.ExecContext(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
			return err
		}
		return errNoStock
	}), errNoStock)
	require.Equal(t, 2, calls)

	sink, err := guideHandler(ctx, s.pool)
	require.NoError(t, err)
	_, err = sink.Deliver(ctx, s.delivery(t, "o-30"))
	require.NoError(t, err)
	require.Equal(t, []string{"o-17", "o-18", "o-19", "o-27", "o-20", "o-21", "o-22", "o-25", "o-25", "o-26", ""},
		s.column(t, `SELECT key FROM outbox ORDER BY "offset"`))
}

func guideSQL(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	err := publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('o-17', 'kite')`); err != nil {
			return err
		}
		return publisher.Publish(ctx, tx, OrderPlaced{Order: "o-17", Product: "kite"})
	})
	return err
}

func guideSQLByHand(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := publisher.Publish(ctx, tx, OrderPlaced{Order: "o-18", Product: "kite"}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	publisher.Announce()
	return nil
}

func TestTheGuideOfTheOutboxOfPgxPublishes(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	require.NoError(t, guideOutboxOfPgx(t.Context(), s.pool))
	s.holds(t, "o-19")
}

func guideOutboxOfPgx(ctx context.Context, pool *pgxpool.Pool) error {
	o := waybillpgx.New(pool, waybill.PostgresConfig{})
	defer o.Close()
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.Key))
	return o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o-19', 'kite')`); err != nil {
			return err
		}
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-19", Product: "kite"})
	})
}

func guidePgx(ctx context.Context, publisher *outbox.Publisher, pool *pgxpool.Pool) error {
	err := outbox.RunInPgx(ctx, publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o-19', 'kite')`); err != nil {
			return err
		}
		return publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: "o-19", Product: "kite"})
	})
	return err
}

func guidePgxBatch(ctx context.Context, publisher *outbox.Publisher, pool *pgxpool.Pool) error {
	placeOrder := func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o-27', 'kite')`); err != nil {
			return err
		}
		return publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: "o-27", Product: "kite"})
	}
	err := outbox.RunInPgx(ctx, publisher, pgxbatch.Pool(pool), pgx.TxOptions{}, placeOrder)
	return err
}

// guideHandler assembles a whole program with a pool and a sink with a handler.
func guideHandler(ctx context.Context, pool *pgxpool.Pool) (sinks.Sink, error) {
	address := func(context.Context) (string, error) { return pool.Config().ConnString(), nil }
	db := stdlib.OpenDBFromPool(pool)
	db.SetMaxOpenConns(int(pool.Config().MaxConns))
	store, err := postgres.Open(ctx, db, postgres.Config{ListenDSN: func(ctx context.Context) (string, error) {
		return address(ctx) // with the current token, as the pool's BeforeConnect sets it
	}})
	if err != nil {
		return nil, err
	}
	types, err := guideTypes()
	if err != nil {
		return nil, err
	}
	publisher, err := outbox.New(types, store, outbox.Config{})
	if err != nil {
		return nil, err
	}
	payments := inbox.HandleTx(inbox.Config{Inbox: inbox.New(store), Pgx: inbox.Pgx(pool, pgx.TxOptions{}), Publisher: publisher}, types,
		func(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
			if _, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1)`, o.Order); err != nil {
				return err
			}
			return publisher.Publish(ctx, outbox.Pgx(tx), PaymentDue{Order: o.Order})
		})
	return payments, nil
}

func guideTypes() (*registry.Registry, error) {
	types := registry.New()
	err := registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Key))
	return types, errors.Join(err, registry.Register[PaymentDue](types, "payment.due"))
}

func guideSqlx(ctx context.Context, publisher *outbox.Publisher, dbx *sqlx.DB) error {
	order := OrderPlaced{Order: "o-20", Product: "kite"}
	tx, err := dbx.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, `INSERT INTO orders VALUES (:order, :product)`, order); err != nil {
		return err
	}
	if err := publisher.Publish(ctx, tx, order); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	publisher.Announce()
	return nil
}

func guideGorm(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	gormDB, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}))
	if err != nil {
		return err
	}
	return guideGormIn(ctx, publisher, gormDB)
}

func guideGormIn(ctx context.Context, publisher *outbox.Publisher, gormDB *gorm.DB) error {
	err := gormDB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{ID: "o-21", Product: "kite"}).Error; err != nil {
			return err
		}
		return publisher.Publish(ctx, tx.Statement.ConnPool, OrderPlaced{Order: "o-21", Product: "kite"})
	})
	if err != nil {
		return err
	}
	publisher.Announce()
	return nil
}

func guideBun(ctx context.Context, publisher *outbox.Publisher, bunDB *bun.DB) error {
	err := bunDB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&bunOrder{ID: "o-22", Product: "kite"}).Exec(ctx); err != nil {
			return err
		}
		return publisher.Publish(ctx, tx, OrderPlaced{Order: "o-22", Product: "kite"})
	})
	if err != nil {
		return err
	}
	publisher.Announce()
	return nil
}

func guideOptions(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	return publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		err := publisher.Publish(ctx, tx,
			OrderPlaced{Order: "o-25", Product: "kite"},
			outbox.With(PaymentDue{Order: "o-25"}, outbox.Key("o-25"), outbox.DeliverAt(time.Now().Add(24*time.Hour)), outbox.Metadata("tenant", "acme")),
		)
		return err
	})
}

func guideAppend(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	return publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		err := publisher.Append(ctx, tx, notification.Envelope{Type: "order.placed", Key: "o-26", Payload: []byte(`{"Order": "o-26"}`)})
		return err
	})
}

func guideRetries(ctx context.Context, publisher *outbox.Publisher, db *sql.DB, placeOrder func(context.Context, *sql.Tx) error) error {
	for {
		err := publisher.RunInTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelSerializable}, placeOrder)
		var refused interface{ SQLState() string }
		if !errors.As(err, &refused) || refused.SQLState() != "40001" && refused.SQLState() != "40P01" {
			return err
		}
	}
}
