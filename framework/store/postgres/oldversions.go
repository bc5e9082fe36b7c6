package postgres

import (
	"sync/atomic"
	"time"
)

// oldVersions is how many old versions of the cursors' rows the server keeps. Without a held snapshot
// updates remove them at once, so that a few are left, however many checkpoints there are.
type oldVersions struct {
	count atomic.Int64
	asked atomic.Pointer[time.Time] // when a checkpoint last asked
}

// oldVersionsEvery is how often one of the checkpoints asks: before PostgreSQL 15 the server's statistics
// are read from a file, which takes some tens of milliseconds.
const oldVersionsEvery = 10 * time.Second

// due reports whether a checkpoint shall ask.
func (v *oldVersions) due() bool {
	now, asked := time.Now(), v.asked.Load()
	return (asked == nil || now.Sub(*asked) >= oldVersionsEvery) && v.asked.CompareAndSwap(asked, &now)
}

// oldVersionsSQL asks the server's statistics, which every role may read. They do not see what the
// last second did.
func oldVersionsSQL(n names) string {
	return `CASE WHEN ?::boolean THEN pg_stat_get_dead_tuples(` + n.Literal("cursors") + `::regclass) END`
}

// OldVersions returns the server's latest answer; see store.Deliveries.
func (d *dialect) OldVersions() int { return int(d.oldVersions.count.Load()) }
