// Two processes run the same schedule: one of them makes each tick, once.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

type ReportDue struct{ At time.Time }

func main() {
	folder, err := os.MkdirTemp("", "schedule")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := run(context.Background(), os.Stdout, filepath.Join(folder, "shop.db")); err != nil {
		log.Fatal(err)
	}
}

// ticks is after how many the example ends.
const ticks = 3

func run(ctx context.Context, out io.Writer, path string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var both errgroup.Group
	for _, process := range []string{"one", "other"} {
		db, err := sqlite.OpenDB(path) // each has its own, as two programs would
		if err != nil {
			return err
		}
		defer db.Close()
		o := waybill.SQLite(db, waybill.SQLiteConfig{})
		o.Config.Logger = slog.New(slog.DiscardHandler)
		if err := o.Migrate(ctx); err != nil {
			return err
		}
		waybill.Register[ReportDue](o, "report.due")
		o.Schedule("report", waybill.Every(time.Second), func(_ context.Context, tick time.Time) (any, error) {
			return ReportDue{At: tick}, nil
		})
		if process == "one" { // delivers, too
			var last time.Time
			n := 0
			waybill.Handle(o, "printer", func(_ context.Context, r ReportDue) error {
				if n++; n <= ticks {
					fmt.Fprintf(out, "report %d%s\n", n, since(last, r.At))
				}
				if last = r.At; n == ticks {
					stop()
				}
				return nil
			}).Parallelism.Threshold = 1
		}
		both.Go(func() error { return o.Run(ctx) })
	}
	return both.Wait()
}

func since(last, at time.Time) string {
	if last.IsZero() {
		return ""
	}
	return ", " + at.Sub(last).String() + " after the last one"
}
