package observe_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

type OrderPlaced struct{ Order string }

// A program that delivers with package waybill serves probes and metrics.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	defer func() { check(errors.Join(db.Close(), os.RemoveAll(folder))) }()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	check(o.Migrate(ctx))

	monitor := observe.New(observe.Config{})
	server := httptest.NewServer(monitor) // normally http.ListenAndServe("127.0.0.1:8090", monitor)
	defer server.Close()
	waybill.Handle(o, "warehouse", func(context.Context, OrderPlaced) error {
		defer stop() // one delivery is enough here
		fmt.Print(fetch(server.URL + "/livez"))
		fmt.Print(fetch(server.URL + "/readyz"))
		return nil
	})

	o.Config.Observer = monitor
	check(o.Open(ctx))
	c, err := o.Forwarding()
	check(err)
	defer monitor.Watch(observe.Target{Forwarder: o.Forwarder(), Store: c.Store.(store.Sampler), DB: db})()
	go monitor.Run(ctx) // samples the database: what is pending, parked and dead

	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17"})
	}))
	check(o.Run(ctx))
	// Output:
	// live
	// ready
}

func fetch(url string) string {
	response, err := http.Get(url)
	check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
