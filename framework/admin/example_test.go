package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Count first, ask for confirmation, then act.
func ExampleAdmin_Requeue() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "waybill")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.OpenDB(filepath.Join(dir, "outbox.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		log.Fatal(err)
	}
	s, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error)
		VALUES ('partner', 1, 0, 'a', 'order.placed', 1, '', '2026-01-02T12:00:00.000000Z', '{}', '{}', 'dead', 12, 'timeout')`); err != nil {
		log.Fatal(err)
	}

	a := admin.New(s, "ada@laptop")
	plan, err := a.Requeue(ctx, admin.Filter{Sink: "partner", Error: "timeout"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("to requeue:", plan.Total())
	action, err := plan.Run(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(action.Who, "requeued", action.Count)
	// Output:
	// to requeue: 1
	// ada@laptop requeued 1
}
