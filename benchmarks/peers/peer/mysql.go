package peer

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	driver "github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// InMySQL is an outbox in MySQL or MariaDB. Its dsn is a URL that begins with mysql://.
type InMySQL struct {
	Outbox
	Family mysqltest.Family
}

// Name returns the name of the outbox and of the family.
func (m InMySQL) Name() string { return m.Outbox.Name() + " in " + string(m.Family) }

// inMySQL reports whether a dsn is a URL of MySQL or MariaDB.
func inMySQL(dsn string) bool { return strings.HasPrefix(dsn, "mysql://") }

const createMySQLBusiness = `CREATE TABLE purchases (id bigint PRIMARY KEY, customer varchar(100) NOT NULL, cents bigint NOT NULL, placed_on datetime(6) NOT NULL)`

var argument = regexp.MustCompile(`\$[0-9]+`)

// rebind replaces $1, $2 and so on by the placeholders of a dsn's database. The query must use its
// arguments in order.
func rebind(dsn, query string) string {
	if !inMySQL(dsn) {
		return query
	}
	return argument.ReplaceAllLiteralString(query, "?")
}

// insertRows is the number of rows in one INSERT.
const insertRows = 500

// insertMany fills a table of MySQL.
func insertMany(ctx context.Context, dsn, table string, columns []string, n int, row func(number int) []any) error {
	return withDB(dsn, func(db *sql.DB) error {
		places := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")"
		insert := fmt.Sprintf("INSERT INTO %s (`%s`) VALUES ", table, strings.Join(columns, "`, `"))
		for first := 0; first < n; first += insertRows {
			rows := min(insertRows, n-first)
			args := make([]any, 0, rows*len(columns))
			for number := first; number < first+rows; number++ {
				args = append(args, row(number)...)
			}
			if _, err := db.ExecContext(ctx, insert+strings.TrimSuffix(strings.Repeat(places+", ", rows), ", "), args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// SkipLockedMySQL is SkipLocked in MySQL and MariaDB.
func SkipLockedMySQL() Relay {
	return Relay{
		Name:          "Home-made SKIP LOCKED",
		Configuration: fmt.Sprintf("SELECT … ORDER BY id LIMIT %d FOR UPDATE SKIP LOCKED in READ COMMITTED; deliver the batch; DELETE; commit; a poll every %s", skipLockedBatch, skipLockedPoll),
		Outbox:        Table{},
		Deliver: func(ctx context.Context, dsn string, to receiver.Destination) error {
			return relayTurns(ctx, dsn, to, skipLockedMySQLTurn, skipLockedBatch, skipLockedPoll)
		},
	}
}

func skipLockedMySQLTurn(ctx context.Context, db *sql.DB, out sender) (n int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, "SELECT id, `key`, payload FROM messages ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED", skipLockedBatch)
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
	ids := make([]string, len(batch))
	for i, item := range batch {
		ids[i] = strconv.FormatInt(item.id, 10)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE id IN (`+strings.Join(ids, ",")+`)`); err != nil {
		return 0, err
	}
	return len(batch), tx.Commit()
}

// openWatermill opens a database for Watermill. MySQL accepts its bytes as JSON only if the driver
// does not write them into the text of the statement.
func openWatermill(dsn string) (*sql.DB, error) {
	if !inMySQL(dsn) {
		return openDB(dsn)
	}
	a, err := mysql.ParseAddress(dsn)
	if err != nil {
		return nil, err
	}
	config := driver.NewConfig()
	config.User, config.Net, config.Addr, config.DBName, config.ParseTime = a.User, "tcp", a.Host, a.Database, true
	return sql.Open("mysql", config.FormatDSN())
}

// watermillAdapters returns Watermill's adapters for a dsn's database.
func watermillAdapters(dsn string, batch int) (watermillsql.SchemaAdapter, watermillsql.OffsetsAdapter) {
	if inMySQL(dsn) {
		return watermillsql.DefaultMySQLSchema{SubscribeBatchSize: batch}, watermillsql.DefaultMySQLOffsetsAdapter{}
	}
	return watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}, watermillsql.DefaultPostgreSQLOffsetsAdapter{}
}
