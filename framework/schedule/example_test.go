package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

type ReportDue struct{ Report string }

// Any number of processes may run this schedule: one of them publishes each tick.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer func() { check(os.RemoveAll(folder)) }()
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	defer func() { check(db.Close()) }()
	_, err = sqlite.Migrate(ctx, db, sqlite.Config{})
	check(err)
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	check(err)
	types := registry.New()
	check(registry.Register[ReportDue](types, "report.due"))
	publisher, err := outboxes.New(types, store, outboxes.Config{})
	check(err)

	scheduler, err := schedule.New(
		schedule.Config{Store: store, DB: db, Publisher: publisher, Logger: slog.New(slog.DiscardHandler)},
		schedule.Schedule{
			Name: "sales-report",
			When: schedule.Every(time.Second),
			Make: func(context.Context, time.Time) (any, error) { return ReportDue{Report: "sales"}, nil },
		})
	check(err)
	go func() { // one tick is enough here
		for published := 0; published == 0; time.Sleep(20 * time.Millisecond) {
			check(db.QueryRow(`SELECT count(*) FROM outbox`).Scan(&published))
		}
		stop()
	}()
	check(scheduler.Run(ctx))

	var typ, payload string
	check(db.QueryRow(`SELECT type, payload FROM outbox ORDER BY "offset" LIMIT 1`).Scan(&typ, &payload))
	fmt.Println(typ, payload)
	// Output: report.due {"Report":"sales"}
}

// Berlin sets its clocks forward in the night to 2026-03-29, so 9:00 there is then 7:00 in UTC.
func ExampleCron() {
	when := schedule.Cron("0 9 * * *", "Europe/Berlin")
	tick := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 2 {
		tick = when.Next(tick)
		fmt.Println(tick.Format(time.RFC3339))
	}
	fmt.Println(schedule.Cron("0 9 * *", "Europe/Berlin").Err() != nil)
	// Output:
	// 2026-03-28T08:00:00Z
	// 2026-03-29T07:00:00Z
	// true
}

func ExampleEvery() {
	tick := time.Date(2026, 3, 27, 12, 7, 0, 0, time.UTC)
	fmt.Println(schedule.Every(15 * time.Minute).Next(tick).Format(time.TimeOnly))
	// Output: 12:15:00
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
