package postgres_test

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func Example() {
	ctx := context.Background()
	server, err := postgrestest.Start(ctx, postgrestest.Options{})
	check(err)
	defer server.Stop()
	db, err := postgres.OpenDB(server.DSN())
	check(err)
	defer func() { check(db.Close()) }()
	applied, err := postgres.Migrate(ctx, db, postgres.Config{})
	check(err)
	fmt.Println(applied)

	// Any program can publish, in its own transaction.
	_, err = db.Exec(`INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'customer/17', '{"total":42}')`)
	check(err)

	s, err := postgres.Open(ctx, db, postgres.Config{Listen: server.DSN()})
	check(err)
	target, err := s.Probe(ctx)
	check(err)
	fmt.Println(target.Last())
	// Output:
	// [00001_outbox.sql]
	// 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
