package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

var onPostgreSQL = dialect{
	start: func(ctx context.Context) (server, error) { return startPostgres(ctx) },
	open:  postgres.OpenDB,
	migrate: func(ctx context.Context, db *sql.DB) (store.Inspector, error) {
		if _, err := postgres.Migrate(ctx, db, postgres.Config{}); err != nil {
			return nil, err
		}
		return postgres.Open(ctx, db, postgres.Config{})
	},
	early: []string{`SELECT pg_current_xact_id()`},
	insert: func(columns []string) string {
		places := make([]string, len(columns))
		for i := range places {
			places[i] = fmt.Sprintf("$%d", i+1)
		}
		return `INSERT INTO outbox (` + strings.Join(columns, ", ") + `) VALUES (` + strings.Join(places, ", ") + `)`
	},
	lastID: `SELECT id FROM outbox WHERE "offset" = lastval()`,
	note:   `INSERT INTO crash_log VALUES ($1, $2)`,
	zone:   `+00`,
	cancel: `SELECT outbox_cancel($id)`,
	count: func(c *sql.Conn, key string, n int64) (sum int64, err error) {
		err = c.QueryRowContext(background, `INSERT INTO crash_keys AS k VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET n = k.n + EXCLUDED.n RETURNING n`, key, n).Scan(&sum)
		return sum, err
	},
	onePhase: onePhase,
	twoPhases: phases{
		begin: onePhase.begin, prepare: []string{`PREPARE TRANSACTION $id`},
		commit: []string{`COMMIT PREPARED $id`}, rollback: []string{`ROLLBACK PREPARED $id`},
	},
	listPrepared: `SELECT 1, length(gid), 0, gid FROM pg_prepared_xacts WHERE database = current_database()`,
}

type postgresServer struct {
	*postgrestest.Server
	clock string // the file with the offset of the server's clock; "" without libfaketime
}

// fakeClock finds libfaketime where Debian has it.
const fakeClock = "/usr/lib/*/faketime/libfaketime.so.1"

func startPostgres(ctx context.Context) (*postgresServer, error) {
	s, options := &postgresServer{}, postgrestest.Options{Private: true, Settings: map[string]string{
		"max_prepared_transactions": "100",
		"autovacuum_naptime":        "1s", // a crash loses the statistics from which it knows what to do
	}}
	if library, _ := filepath.Glob(fakeClock); len(library) > 0 {
		file, err := os.CreateTemp("", "waybill-clock-*")
		if err != nil {
			return s, err
		}
		s.clock = file.Name()
		if err := errors.Join(file.Chmod(0o644), file.Close(), s.setClock(0)); err != nil {
			return s, err
		}
		options.Through = []string{"/usr/bin/env", "LD_PRELOAD=" + library[0], "FAKETIME_TIMESTAMP_FILE=" + s.clock,
			"FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	}
	var err error
	s.Server, err = postgrestest.Start(ctx, options)
	return s, err
}

func (s *postgresServer) Stop() (err error) {
	if s.Server != nil {
		err = s.Server.Stop()
	}
	if s.clock != "" {
		err = errors.Join(err, os.Remove(s.clock))
	}
	return err
}

func (s *postgresServer) suffers(k Kind) bool {
	switch k {
	case SetClock:
		return s.clock != ""
	case FailOver:
		_, err := s.Command(background, "pg_basebackup")
		return err == nil
	}
	return true
}

// setClock is noticed within a second.
func (s *postgresServer) setClock(offset time.Duration) error {
	return os.WriteFile(s.clock, fmt.Appendf(nil, "%+.3f\n", offset.Seconds()), 0o644)
}

func (s *postgresServer) create(ctx context.Context) (url string, err error) {
	url, _, err = s.CreateDatabase(ctx)
	return url, err
}

func (s *postgresServer) failOver(ctx context.Context) (dsn string, err error) {
	var standby *postgrestest.Server
	err = retry(ctx, func() (err error) { // the server may still recover from another fault
		standby, err = s.Standby(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	before := s.Server
	err = errors.Join(before.Down(postgrestest.Fast), standby.Promote(), before.Stop())
	s.Server = standby
	return standby.DSN(), err
}

func (s *postgresServer) other(ctx context.Context, db *sql.DB) (pid int, err error) {
	err = db.QueryRowContext(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND backend_type = 'client backend' ORDER BY random() LIMIT 1`).Scan(&pid)
	return pid, err
}

func (s *postgresServer) restart(context.Context) error { return s.Restart(postgrestest.Immediate) }

// session returns 0 before PostgreSQL 15, which does not show that it recovered.
func (s *postgresServer) session(ctx context.Context, c *sql.Conn) (pid int, err error) {
	err = c.QueryRowContext(ctx, `SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 THEN pg_backend_pid() ELSE 0 END`).Scan(&pid)
	return pid, err
}

func (s *postgresServer) endSessions(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	return err
}
