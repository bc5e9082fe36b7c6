// Many-databases runs one forwarder for the databases of three regions. One of them gets its tables
// while the forwarder runs.
//
//	go run ./examples/many-databases
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

type OrderPlaced struct{ Number int }

const configuration = `
databases:
  asia: sqlite:FOLDER/asia.db
  eu: sqlite:FOLDER/eu.db
  us: sqlite:FOLDER/us.db
sinks:
  partner: {kind: go, parallelism: {threshold: 1}}
routes:
  "*": [partner]
`

func main() {
	folder, err := os.MkdirTemp("", "many-databases")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := run(context.Background(), os.Stdout, folder); err != nil {
		log.Fatal(err)
	}
}

// partner is a sink that prints each notification and the database that it comes from.
type partner struct {
	out       io.Writer
	delivered chan bool
}

func (p *partner) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	from := d.Metadata[notification.MetadataDatabase]
	fmt.Fprintf(p.out, "%s: %s %s\n", from, d.Type, d.Payload)
	p.delivered <- true
	return "", nil
}

func run(ctx context.Context, out io.Writer, folder string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	file := filepath.Join(folder, "waybill.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(configuration, "FOLDER", folder)), 0o600); err != nil {
		return err
	}
	p := &partner{out, make(chan bool)}
	command := func(ctx context.Context, args ...string) int {
		return program.Run(ctx, program.Call{Args: append(args, "-c", file)},
			program.Sink("partner", func(sinks.Instance) (sinks.Sink, error) { return p, nil }))
	}
	migrate := func(names string) error {
		fmt.Fprintf(out, "$ waybill migrate --in %s\n", names)
		if code := command(ctx, "migrate", "--in", names); code != 0 {
			return fmt.Errorf("waybill migrate ended with %d", code)
		}
		return nil
	}
	if err := migrate("eu,us"); err != nil {
		return err
	}
	fmt.Fprintln(out, "$ waybill forward")
	forwarded := make(chan int, 1)
	go func() { forwarded <- command(ctx, "forward") }()
	for i, region := range []string{"eu", "us", "asia"} {
		if region == "asia" { // while the forwarder runs
			if err := migrate(region); err != nil {
				return err
			}
		}
		if err := order(ctx, folder, region, i+1); err != nil {
			return err
		}
		<-p.delivered
	}
	stop()
	if code := <-forwarded; code != 0 {
		return fmt.Errorf("waybill forward ended with %d", code)
	}
	return nil
}

// order places an order in the database of a region, as the shop of that region would.
func order(ctx context.Context, folder, region string, number int) error {
	db, err := sqlite.OpenDB(filepath.Join(folder, region+".db"))
	if err != nil {
		return err
	}
	defer db.Close()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	return o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{number})
	})
}
