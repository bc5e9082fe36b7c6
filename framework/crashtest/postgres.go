package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

var onPostgreSQL = dialect{
	start: func(ctx context.Context) (server, error) {
		s, err := postgrestest.Start(ctx, postgrestest.Options{Private: true, Settings: map[string]string{"max_prepared_transactions": "100"}})
		return postgresServer{s}, err
	},
	open: postgres.OpenDB,
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

type postgresServer struct{ *postgrestest.Server }

func (s postgresServer) create(ctx context.Context) (url string, err error) {
	url, _, err = s.CreateDatabase(ctx)
	return url, err
}

func (s postgresServer) restart(context.Context) error { return s.Restart(postgrestest.Immediate) }

// session returns 0 before PostgreSQL 15, which does not show that it recovered.
func (s postgresServer) session(ctx context.Context, c *sql.Conn) (pid int, err error) {
	err = c.QueryRowContext(ctx, `SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 THEN pg_backend_pid() ELSE 0 END`).Scan(&pid)
	return pid, err
}

func (s postgresServer) endSessions(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	return err
}
