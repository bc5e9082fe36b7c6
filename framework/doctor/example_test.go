package doctor_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func ExampleRun() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "doctor")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `DROP INDEX outbox_parked_due`); err != nil {
		log.Fatal(err)
	}
	for _, f := range doctor.Run(ctx, doctor.Subject{DB: db, SQLite: &sqlite.Config{}}, doctor.Options{Skip: []string{"disk"}}) {
		if f.Status == doctor.Warn || f.Status == doctor.Fail {
			fmt.Printf("%s: %s\n%s\n", f.ID, f.Text, f.Fix)
		}
	}
	// Output:
	// indexes: outbox_parked_due is missing
	// CREATE INDEX "outbox_parked_due" ON "outbox_parked" (sink, due_at, "offset") WHERE due_at IS NOT NULL;
}
