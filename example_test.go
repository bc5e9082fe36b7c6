package waybill_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

type OrderPlaced struct{ Order, Product string }

type GoodsReserved struct{ Order string }

var (
	errUnknownProduct = errors.New("there is no such product")
	errTooManyMails   = errors.New("too many mails")
	errNoMailServer   = errors.New("the mail server cannot be reached")
)

// send sends a mail.
func send(_ context.Context, text string) error {
	fmt.Println(text)
	return nil
}

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(func(n OrderPlaced) string { return n.Order }))
	waybill.Register[GoodsReserved](o, "goods.reserved", waybill.Key(func(n GoodsReserved) string { return n.Order }))

	waybill.HandleTx(o, "warehouse", func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		if n.Product != "kite" {
			return waybill.Permanent(errUnknownProduct)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO reservations VALUES ($1)`, n.Order); err != nil {
			return err
		}
		return o.Publish(ctx, tx, GoodsReserved{Order: n.Order}) // published once, too
	})

	waybill.Handle(o, "mail", func(ctx context.Context, n OrderPlaced) error {
		return send(ctx, "thank you for "+n.Order)
	}).Parallelism.Threshold = 4
	waybill.Handle(o, "mail", func(ctx context.Context, n GoodsReserved) error {
		switch err := send(ctx, n.Order+" is on its way"); {
		case errors.Is(err, errTooManyMails):
			return waybill.Throttled(time.Now().Add(time.Minute), err)
		case errors.Is(err, errNoMailServer):
			return waybill.Unavailable(err)
		case err != nil:
			return err
		}
		stop() // one order is enough here: Run ends once the deliveries in flight are settled
		return nil
	})

	check(o.Migrate(ctx))
	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17", Product: "kite"})
	}))
	check(o.Run(ctx))
	// Output:
	// thank you for o-17
	// o-17 is on its way
}

type ReportDue struct{ Day time.Time }

// However many processes run the schedule, one of them publishes each tick.
func ExampleOutbox_Schedule() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[ReportDue](o, "report.due")
	o.Schedule("report", waybill.Every(time.Second), func(_ context.Context, tick time.Time) (any, error) {
		return ReportDue{Day: tick}, nil
	})
	waybill.Handle(o, "printer", func(context.Context, ReportDue) error {
		defer stop() // one report is enough here
		return send(ctx, "the report")
	})
	check(o.Migrate(ctx))
	check(o.Run(ctx))
	// Output: the report
}

// Webhooks from one Go program to another, which reserves each order's goods once.
func ExampleOutbox_Deliver() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	check(o.Migrate(ctx))

	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // both programs have it in their environment
	partner, closePartner := examplePartner(ctx, secret, stop)
	defer closePartner()
	o.Deliver("partner", httpsink.Config{URL: partner, Secret: secret}, "order.*")

	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17", Product: "kite"})
	}))
	check(o.Run(ctx))
	// Output: reserve one kite for o-17
}

// A program serves the dashboard, metrics and probes, and looks at its own outbox.
func ExampleOutbox_Observe() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	waybill.Handle(o, "warehouse", func(ctx context.Context, n OrderPlaced) error {
		defer stop() // one delivery is enough here: Run returns once it is settled
		fmt.Println("attempt", waybill.DeliveryFrom(ctx).Attempt, "of", n.Order)
		return nil
	})
	o.Observe("127.0.0.1:0") // port 0 is any free one; normally 127.0.0.1:8090
	check(o.Migrate(ctx))

	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17", Product: "kite"})
	}))
	check(o.Run(ctx))

	ctx = context.Background()
	status, err := o.Admin("ada").Status(ctx, o.Routing().Routes)
	check(err)
	fmt.Println("last offset:", status.LastOffset)
	plan, err := o.Admin("ada").Requeue(ctx, admin.Filter{Sink: "warehouse"})
	check(err)
	fmt.Println("to requeue:", plan.Total())
	// Output:
	// attempt 1 of o-17
	// last offset: 1
	// to requeue: 0
}

// examplePartner starts the other program, which has its own database.
func examplePartner(ctx context.Context, secret string, done func()) (url string, end func()) {
	db, closeDB := exampleDB()
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	check(o.Migrate(ctx))
	check(o.Open(ctx))
	once := inbox.HandleTx(inbox.Config{Inbox: o.Inbox(), DB: db, Consumer: "reservations"}, o.Types(),
		func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
			fmt.Println("reserve one", n.Product, "for", n.Order)
			done()
			_, err := tx.ExecContext(ctx, `INSERT INTO reservations VALUES ($1)`, n.Order)
			return err
		})
	handler, err := webhook.Receive(webhook.Receiver{Secrets: []string{secret}}, once)
	check(err)
	server := httptest.NewServer(handler)
	return server.URL, func() { server.Close(); closeDB() }
}

// Webhooks to the endpoints of customers. Each customer is a tenant.
func ExampleOutbox_Endpoints() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	customer := &exampleCustomer{done: stop}
	server := httptest.NewServer(customer)
	defer server.Close()
	nearby := httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}} // the server is on this machine

	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(func(n OrderPlaced) string { return n.Order }))
	o.Deliver("customers", webhooks.Config{ClientConfig: nearby}, "order.*")
	check(o.Migrate(ctx))

	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, secret, err := o.Endpoints().In(tx).Create(ctx, webhooks.NewEndpoint{
			Tenant:   "acme",
			Settings: webhooks.Settings{URL: server.URL + "/hooks", Types: []string{"order.*"}},
		})
		if err != nil {
			return err
		}
		customer.secret = secret // show it to the customer
		return o.Publish(ctx, tx, waybill.With(OrderPlaced{Order: "o-17", Product: "kite"}, waybill.Metadata("tenant", "acme")))
	}))
	check(o.Run(ctx))
	// Output: {"Order":"o-17","Product":"kite"}
}

// exampleCustomer is the server of a customer.
type exampleCustomer struct {
	secret string
	done   func()
}

func (c *exampleCustomer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Data json.RawMessage }
		check(json.NewDecoder(r.Body).Decode(&body))
		fmt.Println(string(body.Data))
		c.done()
		w.WriteHeader(http.StatusNoContent)
	}
	secrets := []string{c.secret}
	verified, err := webhook.Receiver{Secrets: secrets}.Verify(http.HandlerFunc(accept))
	check(err)
	verified.ServeHTTP(w, r)
}

type CustomerJoined struct{ Customer, Email string }

// The email is encrypted in the database, and decrypted for the handler, until the customer is erased.
func ExamplePrivate() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, end := exampleDB()
	defer end()
	check(os.Setenv("WAYBILL_MASTER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))

	master, err := privacy.LocalKeys(os.Getenv("WAYBILL_MASTER_KEY")) // made by: openssl rand -base64 32
	check(err)
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	o.Privacy = privacy.Config{Master: master}
	waybill.Register[CustomerJoined](o, "customer.joined",
		waybill.Private(func(n CustomerJoined) string { return n.Customer }, "Email"))
	waybill.Handle(o, "mail", func(ctx context.Context, n CustomerJoined) error {
		defer stop() // one mail is enough here
		return send(ctx, "welcome, "+n.Email)
	})
	check(o.Migrate(ctx))

	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, CustomerJoined{Customer: "c-17", Email: "ada@example.com"})
	}))
	check(o.Run(ctx))

	ctx = context.Background()
	var payload string
	check(db.QueryRowContext(ctx, `SELECT payload FROM outbox`).Scan(&payload))
	fmt.Println(payload[:strings.Index(payload, ":1:")+3] + "…")

	plan, err := o.Admin("ada").Erase(ctx, o.Keyring(), "c-17")
	check(err)
	_, err = plan.Run(ctx, nil)
	check(err)
	fmt.Println("erased keys:", plan.Keys)
	// Output:
	// welcome, ada@example.com
	// {"Customer":"c-17","Email":"waybill:1:…
	// erased keys: 1
}

// exampleDB is a database with a table of the application.
func exampleDB() (db *sql.DB, end func()) {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	db, err = sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	_, err = db.Exec(`CREATE TABLE reservations (order_id TEXT)`)
	check(err)
	return db, func() { check(errors.Join(db.Close(), os.RemoveAll(folder))) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
