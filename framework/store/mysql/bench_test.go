package mysql_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

// BenchmarkDrain reads a backlog of 200,000 rows of 400 bytes with only a reader and probes. Some offsets
// were rolled back. It begins once all holes are decided, which takes some seconds.
func BenchmarkDrain(b *testing.B) {
	for _, percent := range []int{0, 5} {
		b.Run(fmt.Sprintf("%d%% rolled back", percent), func(b *testing.B) {
			db := newDB(b)
			s := openStore(b, db, mysql.Config{})
			fill(b, s, db, 200_000, percent)
			read := 0
			for b.Loop() {
				fresh, err := mysql.Open(b.Context(), db, mysql.Config{})
				require.NoError(b, err)
				r, err := fresh.NewReader(nil, allRows)
				require.NoError(b, err)
				rows := 0
				target, err := fresh.Probe(b.Context())
				require.NoError(b, err)
				for caughtUp := false; !caughtUp; {
					page, err := r.Next(b.Context(), target, 10_000)
					require.NoError(b, err)
					rows += len(page.Envelopes)
					caughtUp = page.CaughtUp
				}
				require.NotZero(b, rows)
				read += rows
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkProbe probes a log without new rows.
func BenchmarkProbe(b *testing.B) {
	db := newDB(b)
	s := openStore(b, db, mysql.Config{})
	fill(b, s, db, 1000, 0)
	var target store.Target
	for b.Loop() {
		var err error
		target, err = s.Probe(b.Context())
		require.NoError(b, err)
	}
	require.Equal(b, int64(1000), target.Last())
}

// fill writes rows, and rolls back a percentage of them.
func fill(b *testing.B, s *mysql.Store, db *sql.DB, rows, percent int) {
	b.Helper()
	const chunk = 1000
	statement := s.InsertInto() + ` (UUID(), 'order.placed', 1, CONCAT('k', FLOOR(RAND() * 1000)), UTC_TIMESTAMP(6), NULL, '{}', CONCAT('{"pad":"', REPEAT('x', 390), '"}'))`
	many := func(n int) string {
		return statement + strings.Repeat(`,`+strings.TrimPrefix(statement, s.InsertInto()), n-1)
	}
	for written := 0; written < rows; written += chunk {
		for range 10 {
			_, err := db.ExecContext(b.Context(), many(chunk/10))
			require.NoError(b, err)
			if percent == 0 {
				continue
			}
			tx, err := db.BeginTx(b.Context(), nil)
			require.NoError(b, err)
			_, err = tx.ExecContext(b.Context(), many(chunk/10*percent/100))
			require.NoError(b, err)
			require.NoError(b, tx.Rollback())
		}
	}
}
