package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/registry"
)

type orderPlaced struct{ Order int }

// An application publishes in its own transaction. A forwarder uses the same store.
func Example() {
	ctx := context.Background()
	db, err := mysql.OpenDB("mysql://app:secret@localhost:3306/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := placeOrder(ctx, db, 17); err != nil {
		log.Print(err)
	}
}

func placeOrder(ctx context.Context, db *sql.DB, order int) error {
	if _, err := mysql.Migrate(ctx, db, mysql.Config{}); err != nil { // when the application is deployed
		return err
	}
	outboxLog, err := mysql.Open(ctx, db, mysql.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[orderPlaced](types, "order.placed"); err != nil {
		return err
	}
	publisher, err := outbox.New(types, outboxLog, outbox.Config{})
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, order); err != nil {
		return fmt.Errorf("store the order: %w", err)
	}
	if err := publisher.Publish(ctx, tx, orderPlaced{Order: order}); err != nil {
		return err
	}
	return tx.Commit()
}

func ExampleParseAddress() {
	address, err := mysql.ParseAddress("mysql://app:secret@db.example:3307/shop?tls=true")
	fmt.Println(address.User, address.Host, address.Database, err)
	// Output: app db.example:3307 shop <nil>
}
