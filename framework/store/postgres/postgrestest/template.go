package postgrestest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
)

// Template is a database that the tests of a process copy, which takes less time than filling each of theirs:
//
//	var migrated = postgrestest.Template{Prepare: func(ctx context.Context, db *sql.DB) error {
//		_, err := postgres.Migrate(ctx, db, postgres.Config{})
//		return err
//	}}
//
//	dsn := migrated.DSN(t)
//
// The copies are dropped as those of New are. It is safe for concurrent use.
type Template struct {
	// Prepare fills the database, once. Required.
	Prepare func(ctx context.Context, db *sql.DB) error

	mu   sync.Mutex
	name string // "" before it is filled
}

// DSN returns the URL of a copy for this test only.
func (p *Template) DSN(t testing.TB) string {
	t.Helper()
	server, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	if server.cluster == nil { // a template would remain on a server that is not ours
		dsn := DSN(t)
		if err := p.fill(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	name, err := p.get(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	return copyOf(t, name)
}

// get returns the name of the filled database.
func (p *Template) get(ctx context.Context, server *Server) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.name != "" {
		return p.name, nil
	}
	name, err := server.createDatabase(ctx, empty)
	if err != nil {
		return "", err
	}
	if err := p.fill(ctx, withDatabase(server.address, name)); err != nil {
		return "", errors.Join(err, server.dropDatabase(name))
	}
	p.name = name
	return name, nil
}

func (p *Template) fill(ctx context.Context, dsn string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	return errors.Join(p.Prepare(ctx, db), db.Close())
}
