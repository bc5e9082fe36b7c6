package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

var onMySQL = dialect{
	start: func(ctx context.Context) (server, error) {
		s, err := mysqltest.Start(ctx, mysqltest.Options{Private: true, Durable: true})
		return mysqlServer{s}, err
	},
	open: mysql.OpenDB,
	migrate: func(ctx context.Context, db *sql.DB) (store.Inspector, error) {
		if _, err := mysql.Migrate(ctx, db, mysql.Config{}); err != nil {
			return nil, err
		}
		return mysql.Open(ctx, db, mysql.Config{})
	},
	// The transaction takes an offset, gives it up, and continues.
	early: []string{`SAVEPOINT early`, `INSERT INTO outbox (type, payload) VALUES ('crash.undone', '{}')`, `ROLLBACK TO SAVEPOINT early`},
	insert: func(columns []string) string {
		return "INSERT INTO outbox (`" + strings.Join(columns, "`, `") + "`) VALUES (?" + strings.Repeat(", ?", len(columns)-1) + ")"
	},
	lastID: "SELECT id FROM outbox WHERE `offset` = LAST_INSERT_ID()",
	note:   `INSERT INTO crash_log VALUES (?, ?)`,
	cancel: "INSERT INTO outbox_cancelled (`offset`, id) SELECT `offset`, id FROM outbox WHERE id = $id",
	count: func(c *sql.Conn, key string, n int64) (sum int64, err error) {
		if _, err := c.ExecContext(background, `INSERT INTO crash_keys VALUES (?, ?) ON DUPLICATE KEY UPDATE n = n + VALUES(n)`, key, n); err != nil {
			return 0, err
		}
		err = c.QueryRowContext(background, `SELECT n FROM crash_keys WHERE name = ?`, key).Scan(&sum)
		return sum, err
	},
	onePhase: onePhase,
	twoPhases: phases{
		begin: []string{`XA START $id`}, prepare: []string{`XA END $id`, `XA PREPARE $id`},
		commit: []string{`XA COMMIT $id`}, rollback: []string{`XA ROLLBACK $id`},
	},
	listPrepared: `XA RECOVER`,
}

type mysqlServer struct{ *mysqltest.Server }

func (s mysqlServer) create(ctx context.Context) (string, error) {
	name, _, err := s.CreateDatabase(ctx)
	return s.URL(name), err
}

// restart waits until the server has run for a second, because it reports its start in whole seconds.
func (s mysqlServer) restart(ctx context.Context) error {
	if err := retry(ctx, func() error { return s.upFor(ctx, 2) }); err != nil {
		return err
	}
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Up(ctx)
}

func (s mysqlServer) upFor(ctx context.Context, seconds int) error {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	var name string
	var uptime int
	err = db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Uptime'`).Scan(&name, &uptime)
	if err == nil && uptime < seconds {
		err = fmt.Errorf("the server has run for %d s", uptime)
	}
	return err
}

// session returns 0: the server is a single process.
func (s mysqlServer) session(context.Context, *sql.Conn) (int, error) { return 0, nil }

// endSessions ignores sessions that have ended before it kills them.
func (s mysqlServer) endSessions(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		_, _ = db.ExecContext(ctx, fmt.Sprint("KILL ", id))
	}
	return nil
}

// suffers is false: the server is one process, and starts no standby.
func (mysqlServer) suffers(Kind) bool { return false }

func (mysqlServer) other(context.Context, *sql.DB) (int, error) { return 0, errors.ErrUnsupported }

func (mysqlServer) failOver(context.Context) (string, error) { return "", errors.ErrUnsupported }

func (mysqlServer) setClock(time.Duration) error { return errors.ErrUnsupported }
