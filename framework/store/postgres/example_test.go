package postgres_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/registry"
)

type orderPlaced struct{ Order int }

// An application publishes in its own transaction. A forwarder uses the same store.
func Example() {
	ctx := context.Background()
	server, err := postgrestest.Start(ctx, postgrestest.Options{}) // instead of one of your own
	check(err)
	defer server.Stop()
	db, err := postgres.OpenDB(server.DSN())
	check(err)
	defer func() { check(db.Close()) }()
	applied, err := postgres.Migrate(ctx, db, postgres.Config{}) // when the application is deployed
	check(err)
	fmt.Println(applied)

	store, err := postgres.Open(ctx, db, postgres.Config{}) // a forwarder's has an address for Listen too
	check(err)
	types := registry.New()
	check(registry.Register[orderPlaced](types, "order.placed"))
	publisher, err := outbox.New(types, store, outbox.Config{})
	check(err)
	check(publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Publish(ctx, tx, orderPlaced{Order: 17})
	}))

	// Programs in other languages publish with an INSERT.
	_, err = db.Exec(`INSERT INTO outbox (type, key, payload) VALUES ('order.paid', 'order/17', '{"cents":4200}')`)
	check(err)

	rows, err := db.Query(`SELECT type, payload FROM outbox ORDER BY "offset"`)
	check(err)
	defer rows.Close()
	for rows.Next() {
		var typ, payload string
		check(rows.Scan(&typ, &payload))
		fmt.Println(typ, payload)
	}
	check(rows.Err())
	// Output:
	// [00001_outbox.sql 00002_values.sql 00003_routes.sql 00004_domains.sql 00005_presence.sql 00006_endpoints.sql 00007_collections.sql 00008_attempts.sql 00009_keys.sql]
	// order.placed {"Order":17}
	// order.paid {"cents":4200}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
