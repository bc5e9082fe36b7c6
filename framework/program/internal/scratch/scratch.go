// Package scratch creates a temporary outbox, in the user's database or in a file, and removes it at the
// end.
package scratch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
)

// removeTimeout limits the removal, which continues after the caller's context is done.
const removeTimeout = 30 * time.Second

// suffixes of the tables that the migrations create, each before those to which it refers.
var suffixes = []string{"_actions", "_keys", "_collections", "_attempts", "_endpoints", "_inbox", "_cancelled", "_unique", "_schedules", "_receipts", "_parked", "_cursors", "_forwarders", "", "_migrations"}

// Outbox is a temporary outbox.
type Outbox struct {
	DB    *sql.DB
	Store database.Store
	// Prefix is the prefix of the tables' names.
	Prefix string

	close  func()
	others []string
	made   bool // whether its tables will be removed
	inTurn bool // whether the database's placeholders have no numbers
}

// Config is how to create an outbox on a server.
type Config struct {
	// Others are further tables of the program, as names without the prefix, each before those to which
	// it refers. This package does not create them, but removes them.
	Others []string
	// Connections is the maximum number of connections.
	Connections int
	// Prepare is called first, on the same handle.
	Prepare func(*sql.DB) error
}

// OpenSQLite creates a database file at a path, with this outbox. The caller removes its folder.
//
// Everything shares one connection and queues for it. With several connections, one that finds the
// database locked sleeps and tries again, so a busy application starves the forwarder's checkpoints: at
// 300 orders per second, the slowest hundredth of the deliveries takes 20 to 150 ms instead of 8. In
// return, the highest rate is half as high.
func OpenSQLite(ctx context.Context, path string, o config.Outbox) (*Outbox, error) {
	file, err := config.ParseDatabase("sqlite:" + path)
	if err != nil {
		return nil, err
	}
	return open(ctx, config.Tables{Database: file, Outbox: o}, func(made *Outbox) error {
		made.DB.SetMaxOpenConns(1)
		return nil
	})
}

// OpenServer creates the tables of an outbox in a database of a server. Close removes the tables, and so does
// OpenServer if it fails.
func OpenServer(ctx context.Context, t config.Tables, c Config) (*Outbox, error) {
	return open(ctx, t, func(made *Outbox) error {
		made.DB.SetMaxOpenConns(c.Connections)
		made.DB.SetMaxIdleConns(c.Connections)
		if err := c.Prepare(made.DB); err != nil {
			return err
		}
		made.others, made.made, made.inTurn = c.Others, true, t.Database.Dialect() == config.MySQL
		return nil
	})
}

func open(ctx context.Context, t config.Tables, prepare func(*Outbox) error) (_ *Outbox, err error) {
	d, closeAll, err := database.Create(t)
	if err != nil {
		return nil, err
	}
	o := &Outbox{DB: d.DB(), Prefix: t.Outbox.Prefix, close: closeAll}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if err := prepare(o); err != nil {
		return nil, err
	}
	if _, err := d.Migrate(ctx, 0); err != nil {
		return nil, err
	}
	o.Store, err = d.Store(ctx)
	return o, err
}

var placeholder = regexp.MustCompile(`\$\d+`)

// SQL converts a statement with the placeholders $1, $2, … and its arguments for the database.
func (o *Outbox) SQL(query string, args ...any) (string, []any) {
	if !o.inTurn {
		return query, args
	}
	var ordered []any
	return placeholder.ReplaceAllStringFunc(query, func(name string) string {
		n, _ := strconv.Atoi(name[1:]) // always digits
		ordered = append(ordered, args[n-1])
		return "?"
	}), ordered
}

// drop drops the existing tables and functions.
func (o *Outbox) drop(ctx context.Context) error {
	var names []string
	for _, suffix := range slices.Concat(o.others, suffixes) {
		names = append(names, o.Prefix+suffix)
	}
	if _, err := o.DB.ExecContext(ctx, `DROP TABLE IF EXISTS `+strings.Join(names, ", ")); err != nil {
		return fmt.Errorf("drop the tables %s and %s_…: %w", o.Prefix, o.Prefix, err)
	}
	for _, function := range []string{"_publish", "_cancel", "_first"} {
		if _, err := o.DB.ExecContext(ctx, `DROP FUNCTION IF EXISTS `+o.Prefix+function); err != nil {
			return fmt.Errorf("drop the function %s%s: %w", o.Prefix, function, err)
		}
	}
	return nil
}

// Close removes the tables and closes the database, even if the context of Open is done.
func (o *Outbox) Close() error {
	defer o.close()
	if !o.made {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return o.drop(ctx)
}
