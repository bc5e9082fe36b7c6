package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// InFile is an outbox in an SQLite file. Its dsn is the absolute path of the file.
type InFile struct{ Outbox }

// Name returns the name of the outbox.
func (f InFile) Name() string { return f.Outbox.Name() + " in a file" }

// inFile reports whether a dsn is the path of a file.
func inFile(dsn string) bool { return filepath.IsAbs(dsn) }

// openDB opens a database of any kind. All contenders use files with WAL and synchronous=FULL.
func openDB(dsn string) (*sql.DB, error) {
	switch {
	case inFile(dsn):
		return sqlite.OpenDB(dsn)
	case inMySQL(dsn):
		return mysql.OpenDB(dsn)
	}
	return postgres.OpenDB(dsn)
}

// insertAll fills a table of a file in one transaction.
func insertAll(ctx context.Context, dsn, table string, columns []string, n int, row func(number int) []any) error {
	return withDB(dsn, func(db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		places := strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
		insert, err := tx.PrepareContext(ctx, fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s)`, table, strings.Join(columns, ", "), places))
		if err != nil {
			return err
		}
		defer insert.Close()
		for number := range n {
			if _, err := insert.ExecContext(ctx, row(number)...); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}

// RiverFile is River's job table in SQLite.
type RiverFile struct{}

// withRiverFile calls use with River's driver, which requires a single connection.
func withRiverFile(dsn string, use func(driver *riversqlite.Driver) error) error {
	return withDB(dsn, func(db *sql.DB) error {
		db.SetMaxOpenConns(1)
		return use(riversqlite.New(db))
	})
}

// Name returns the name of the outbox.
func (RiverFile) Name() string { return "river" }

// Migrate runs River's migrations.
func (RiverFile) Migrate(ctx context.Context, dsn string) error {
	err := withRiverFile(dsn, func(driver *riversqlite.Driver) error {
		migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	return errors.Join(err, execute(ctx, dsn, createBusiness))
}

// Fill inserts many jobs at once.
func (RiverFile) Fill(ctx context.Context, dsn string, n int) error {
	return withRiverFile(dsn, func(driver *riversqlite.Driver) error {
		client, err := river.NewClient(driver, &river.Config{})
		if err != nil {
			return err
		}
		return fillRiver(ctx, client, n)
	})
}

// Pending counts the jobs that are not completed.
func (RiverFile) Pending(ctx context.Context, dsn string) (int, error) {
	return River{}.Pending(ctx, dsn)
}

// Open returns a publisher that inserts a job in a transaction.
func (RiverFile) Open(_ context.Context, dsn string, clients int) (Publisher, error) {
	t, err := openTransactions(dsn, clients)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riversqlite.New(t.db), &river.Config{})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error {
		_, err := client.InsertTx(ctx, tx, orderJob{o}, nil)
		return err
	}
	return t, nil
}

// FileRelay returns the client as a contender on SQLite.
func (r RiverClient) FileRelay(how, configuration string) Relay {
	return Relay{
		Name: "River (" + how + ")", Configuration: configuration, Outbox: InFile{RiverFile{}},
		Deliver: func(ctx context.Context, dsn string, to receiver.Destination) error {
			return withRiverFile(dsn, func(driver *riversqlite.Driver) error { return work(ctx, r, driver, to) })
		},
	}
}

const (
	fileBatch = 1000
	filePoll  = 10 * time.Millisecond
)

// FileTable is a typical home-made relay on SQLite: it reads a batch, delivers it and deletes it.
func FileTable() Relay {
	return Relay{
		Name:          "Home-made outbox",
		Configuration: fmt.Sprintf("SELECT … ORDER BY id LIMIT %d; deliver the batch; DELETE up to its last id; a poll every %s; one relay", fileBatch, filePoll),
		Outbox:        InFile{Table{}},
		Deliver: func(ctx context.Context, dsn string, to receiver.Destination) error {
			return relayTurns(ctx, dsn, to, fileTurn, fileBatch, filePoll)
		},
	}
}

// fileTurn delivers one batch. In SQLite rows are committed in the order of their ids, so it can
// delete up to the last one.
func fileTurn(ctx context.Context, db *sql.DB, out sender) (n int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, key, payload FROM messages ORDER BY id LIMIT ?`, fileBatch)
	if err != nil {
		return 0, err
	}
	batch, err := scanItems(rows)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	if err := out.send(ctx, batch...); err != nil {
		return 0, err
	}
	_, err = db.ExecContext(ctx, `DELETE FROM messages WHERE id <= ?`, batch[len(batch)-1].id)
	return len(batch), err
}
