package postgrestest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"testing"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// A test only asks for a database. It is removed when the test ends.
func ExampleNew() {
	_ = func(t *testing.T) {
		db := postgrestest.New(t)
		if _, err := db.Exec("CREATE TABLE parcels (id int)"); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that is not a test starts a server and stops it.
func ExampleStart() {
	ctx := context.Background()
	server, err := postgrestest.Start(ctx, postgrestest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()

	db, err := sql.Open("postgres", server.DSN())
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	var sum int
	if err := db.QueryRowContext(ctx, "SELECT 1 + 1").Scan(&sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	// Output: 2
}
