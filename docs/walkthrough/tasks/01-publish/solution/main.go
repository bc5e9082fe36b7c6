// The shop takes orders over HTTP, and calls a partner.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/waybillpgx"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

type order struct {
	Order   string `json:"order"`
	Product string `json:"product"`
}

const tables = `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, product text NOT NULL)`

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()

	o := waybillpgx.New(pool, waybill.PostgresConfig{})
	defer func() { _ = o.Close() }()
	waybill.Register[order](o, "order.placed", waybill.Key(func(n order) string { return n.Order }))
	o.Deliver("partner", httpsink.Config{URL: os.Getenv("PARTNER_URL"), Secret: os.Getenv("PARTNER_SECRET")}, "order.*")

	if err := o.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	if err := o.Open(ctx); err != nil {
		return err
	}
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var n order
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := o.InTx(r.Context(), func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, $2)`, n.Order, n.Product); err != nil {
				return err
			}
			return o.Publish(ctx, tx, n)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	ended := make(chan error, 2)
	go func() { ended <- o.Run(ctx) }()
	go func() { ended <- http.ListenAndServe(os.Getenv("ADDRESS"), nil) }()
	return <-ended
}
