package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// mailer is a sink whose first attempt fails.
type mailer struct{ sent func() }

func (m *mailer) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	fmt.Printf("attempt %d: %s %s\n", d.Attempt, d.Type, d.Payload)
	if d.Attempt == 1 {
		return "", errors.New("the mail server is busy") // transient, as every error without a class
	}
	m.sent()
	return "250 queued", nil
}

// A forwarder delivers the notifications in the outbox of an SQLite file, and retries failed deliveries.
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
	outbox, err := sqlite.Open(ctx, db, sqlite.Config{})
	check(err)
	_, err = db.Exec(`INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'o-17', '{"total":42}')`)
	check(err)

	f, err := forwarder.New(forwarder.Config{
		Store:  outbox,
		Routes: route.Routes{"order.*": route.To("mail")},
		Sinks: map[string]forwarder.Sink{"mail": {
			Sink:        &mailer{sent: stop}, // one mail is enough here
			Start:       forwarder.StartOldest,
			Parallelism: forwarder.Parallelism{Threshold: 10},
			Retry:       forwarder.Retry{MaxAttempts: 5, Initial: 50 * time.Millisecond},
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	check(f.Run(ctx)) // until ctx is done
	// Output:
	// attempt 1: order.placed {"total":42}
	// attempt 2: order.placed {"total":42}
}

// Adjust changes the settings of a sink while the forwarder runs.
func ExampleForwarder_Adjust() {
	f, err := forwarder.New(forwarder.Config{
		Fleet:  true,
		Routes: route.Routes{"*": route.To("mail")},
		Sinks:  map[string]forwarder.Sink{"mail": {Sink: &mailer{}}},
	})
	check(err)
	check(f.Adjust("mail", func(s *forwarder.Sink) { s.Parallelism.Threshold = 3 }))
	fmt.Println(f.Adjust("mail", func(s *forwarder.Sink) { s.Parallelism.Threshold = -1 }) != nil)
	settings, _ := f.Settings("mail")
	fmt.Println(settings.Parallelism.Threshold)
	// Output:
	// true
	// 3
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
