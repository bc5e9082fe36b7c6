// Package storetest tests implementations of the interfaces of package store. Waybill's stores run
// it, and so should others:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Dialect{
//			NewDB:   newDB,
//			Migrate: …,
//			Open:    …,
//			Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
//		})
//	}
//
// The suite uses SQL on the tables where the interfaces do not suffice: it acts as a producer that
// writes plain SQL, as an operator who looks at the tables, and as the clock that lets a lease
// expire. Those statements work in all SQL databases; Dialect says how to quote identifiers and
// write times.
package storetest

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/deliveries"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/logs"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/people"
)

// Store is everything that the suite tests: the interfaces Log, Leases, Deliveries, Inspector, Operator,
// Pruner, Inbox, Schedules, Endpoints, Canceller, Claimer, PrivateKeys and Personal of package store, and outbox.Log.
type Store = kit.Store

// Dialect is what the suite must know about a store.
//
// NewDB creates an empty database, which is removed when the test ends; the suite opens up to eight connections to it.
// Migrate creates the tables, with store.DefaultPrefix, and returns the names of the migrations that it applied. Open
// opens the store, with receipts. Restart is SQL that empties the log and makes its offsets begin at the first one
// again, and after Gap the next offset is 1,000,000. OldChecks is SQL that gives the log the checks of the first
// migration, so that Migrate applies the next ones again, and OldTimes are times that those checks took.
//
// Optional: Migrated returns what Migrate made of a NewDB, such as a copy, if that takes less time. Quote is the
// character around an identifier, by default the double quote. Time returns a time as SQL, by default a text in RFC
// 3339 form, in UTC; with NoZones, times in SQL carry no zone. Slots means that the database distributes rows over the
// slots, and has several writers at a time; otherwise all rows are in slot 0. Collides reports whether a method failed
// only because another transaction was in its way, so that it may be called again.
type Dialect = kit.Dialect

// Run tests the whole contract, in a separate database for each fact.
func Run(t *testing.T, d Dialect) {
	t.Run("Start", func(t *testing.T) { logs.Start(t, d) })
	for _, g := range slices.Concat(logs.Groups, deliveries.Groups, people.Groups) {
		t.Run(g.Name, func(t *testing.T) {
			for _, f := range g.Facts {
				t.Run(f.Name, func(t *testing.T) {
					t.Parallel()
					f.Check(t, kit.Open(t, d))
				})
			}
		})
	}
}

// Use does with the rows of a new outbox what applications, forwarders and operators do. It takes a moment,
// and is for sessions with settings that could change what the store's statements mean. Publishers also use handles of
// the application.
func Use(t *testing.T, d Dialect, applications ...*sql.DB) { kit.Use(t, d, applications...) }

// Duties does with customers' endpoints what a publisher, a forwarder and an operator do, in an outbox that is migrated
// and empty. connect returns a handle of a role with the privileges of a duty.
func Duties(t *testing.T, d Dialect, connect func(t *testing.T, duty string) *sql.DB) {
	kit.Duties(t, d, connect)
}
