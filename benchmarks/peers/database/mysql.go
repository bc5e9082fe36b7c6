package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// mysqlServer is a MySQL or MariaDB server.
type mysqlServer struct {
	*mysqltest.Server
	pid       int // 0: unknown
	templates map[string]string
}

// mysql returns the server of a family. The first call starts it; it returns mysqltest.ErrNoServer if
// the machine has none.
func (s *Server) mysql(ctx context.Context, family mysqltest.Family) (*mysqlServer, error) {
	if m := s.mysqls[family]; m != nil {
		return m, nil
	}
	started, err := mysqltest.Start(ctx, mysqltest.Options{Family: family, Private: true, Durable: s.durable})
	if err != nil {
		return nil, err
	}
	m := &mysqlServer{Server: started, templates: make(map[string]string)}
	s.mysqls[family] = m
	return m, m.in(ctx, "", func(db *sql.DB) error {
		var file string
		if err := db.QueryRowContext(ctx, `SELECT @@pid_file`).Scan(&file); err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err == nil {
			m.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
}

// in calls use with a handle of a database of the server.
func (m *mysqlServer) in(ctx context.Context, name string, use func(*sql.DB) error) error {
	db, err := sql.Open("mysql", m.DSN(name))
	if err != nil {
		return err
	}
	return errors.Join(use(db), db.Close())
}

// CopyMySQL is Copy for MySQL and MariaDB. It returns the URL of the copy.
func (s *Server) CopyMySQL(ctx context.Context, family mysqltest.Family, key string, fill Fill) (dsn string, drop func() error, err error) {
	m, err := s.mysql(ctx, family)
	if err != nil {
		return "", nil, err
	}
	template, there := m.templates[key]
	if !there {
		if template, _, err = m.CreateDatabase(ctx); err != nil {
			return "", nil, err
		}
		if err := fill(ctx, m.URL(template)); err != nil {
			return "", nil, fmt.Errorf("fill a database with %s: %w", key, err)
		}
		m.templates[key] = template
	}
	name, drop, err := m.CreateDatabase(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := m.in(ctx, template, func(db *sql.DB) error { return copyTables(ctx, db, name) }); err != nil {
		return "", nil, errors.Join(err, drop())
	}
	runtime.GC() // so that this run need not collect the garbage of the last one
	return m.URL(name), drop, nil
}

// copyTables copies all tables of a database with their rows, which keep their offsets.
func copyTables(ctx context.Context, from *sql.DB, to string) error {
	rows, err := from.QueryContext(ctx, `SELECT t.TABLE_NAME, c.COLUMN_NAME FROM information_schema.TABLES t JOIN information_schema.COLUMNS c
		ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND coalesce(c.GENERATION_EXPRESSION, '') = '' WHERE t.TABLE_SCHEMA = DATABASE()`)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns := make(map[string][]string)
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return err
		}
		columns[table] = append(columns[table], "`"+column+"`")
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for table, names := range columns {
		source, target, list := "`"+table+"`", "`"+to+"`.`"+table+"`", strings.Join(names, ", ")
		for _, statement := range []string{
			`CREATE TABLE ` + target + ` LIKE ` + source,
			`INSERT INTO ` + target + ` (` + list + `) SELECT ` + list + ` FROM ` + source,
			`ANALYZE TABLE ` + target,
		} {
			if _, err := from.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
	}
	return nil
}
