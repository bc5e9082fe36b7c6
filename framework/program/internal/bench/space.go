package bench

import (
	"context"
	"fmt"
	"os"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/waybill-go/waybill/benchmarks/result"
)

var (
	memory      = result.Quantity{Name: "memory", Unit: "MB", Better: "lower"}
	tableSize   = result.Quantity{Name: "tables", Unit: "MB"}
	deadInLog   = result.Quantity{Name: "dead_in_log", Unit: "rows", Better: "lower"}
	deadOutside = result.Quantity{Name: "dead_elsewhere", Unit: "rows", Better: "lower"}
)

const megabyte = 1e6

// residentMB returns the memory of this process: publishers, forwarder and receivers together. It is
// 0 if the system does not report it.
func residentMB() float64 {
	p, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return 0
	}
	m, err := p.MemoryInfo()
	if err != nil {
		return 0
	}
	return float64(m.RSS) / megabyte
}

// tableSizes returns the size of the bench's tables with their indexes and, on PostgreSQL, how many dead rows
// are in them.
func (b *bench) tableSizes(ctx context.Context) ([]result.Figure, error) {
	var bytes float64
	if b.database.mysql {
		err := b.database.scan(ctx, &bytes, `SELECT coalesce(sum(DATA_LENGTH + INDEX_LENGTH), 0) FROM information_schema.TABLES
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'outbox%'`)
		return []result.Figure{tableSize.Of(bytes / megabyte)}, tablesError(err)
	}
	if !b.database.postgres {
		err := b.database.scan(ctx, &bytes, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`)
		return []result.Figure{tableSize.Of(bytes / megabyte)}, tablesError(err)
	}
	if err := b.database.exec(ctx, `ANALYZE outbox, outbox_cursors, outbox_parked, outbox_forwarders`); err != nil { // counts dead rows
		return nil, tablesError(err)
	}
	var inLog, elsewhere float64
	err := b.database.DB.QueryRowContext(ctx, `SELECT
		coalesce(sum(pg_total_relation_size(relid)), 0),
		coalesce(sum(n_dead_tup) FILTER (WHERE relname = $1), 0),
		coalesce(sum(n_dead_tup) FILTER (WHERE relname <> $1), 0)
		FROM pg_stat_user_tables WHERE starts_with(relname, $1)`, b.database.Prefix).Scan(&bytes, &inLog, &elsewhere)
	return []result.Figure{tableSize.Of(bytes / megabyte), deadInLog.Of(inLog), deadOutside.Of(elsewhere)}, tablesError(err)
}

func tablesError(err error) error {
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	return nil
}
