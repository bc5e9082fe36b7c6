// Signup is a service that stores each new user and sends a welcome mail. If a program sends the
// mail inside its transaction, it sends it for a rollback too. If it sends the mail after the commit,
// a crash in between loses the mail.
//
// This program stores the user and the notification in one transaction (signup.go). A forwarder in
// the same process renders the mail from templates and sends it to a mail server. Once the server
// has accepted the mail, the status of the user changes from Pending to Sent, in the transaction
// that settles the delivery. While the server defers the mail, the status is Queued.
//
// The templates have a layout with an image, and a second language: a user whose browser prefers
// German gets a German mail. The person who invited a user gets a copy.
//
//	go run ./examples/signup
//	go run ./examples/signup -smtp smtp://localhost:1025 -database signup.db
//
// It signs four people up over HTTP and waits for their mails. It exits with code 1 if a user is not
// Sent, or if a person whose signup was refused gets a mail.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

//go:embed templates
var templates embed.FS

func main() {
	database := flag.String("database", "", "SQLite file; default: a temporary file")
	smtp := flag.String("smtp", "", "mail server, such as smtp://localhost:1025; default: a mail server inside the program")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelWarn) // the program prints what happens
	if err := run(context.Background(), *database, *smtp, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "signup:", err)
		os.Exit(1)
	}
}

// run starts the service, signs people up and prints their mails. It returns an error if a user is
// not Sent, or if a person who is not a user got a mail.
func run(ctx context.Context, database, smtp string, out io.Writer) error {
	folder, err := os.MkdirTemp("", "signup")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(cmp.Or(database, filepath.Join(folder, "signup.db")))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	log, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	mailServer, err := smtptest.Start(smtptest.Config{})
	if err != nil {
		return err
	}
	defer mailServer.Close()
	handler, engine, err := assemble(ctx, db, log, cmp.Or(smtp, mailServer.URL()))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler}
	go func() { _ = web.Serve(listener) }() // until Close
	defer web.Close()

	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- engine.Run(forwarding) }()
	err = signUp("http://"+listener.Addr().String()+"/signup", out)
	if err == nil {
		err = waitForMails(ctx, db)
	}
	stop() // Run returns once the deliveries in flight are settled
	return errors.Join(err, <-forwarded, report(ctx, db, mailServer.Messages(), out))
}

// outboxLog is implemented by every store: a log to publish to and to forward from.
type outboxLog interface {
	outbox.Log
	forwarder.Store
}

// assemble builds the web handler and the forwarder on a store. It starts neither.
func assemble(ctx context.Context, db *sql.DB, log outboxLog, smtp string) (http.Handler, *forwarder.Forwarder, error) {
	_, errTable := db.ExecContext(ctx, usersTable)
	types := registry.New()
	errTypes := registry.Register[CustomerSignedUp](types, "customer.signed-up", registry.Key(CustomerSignedUp.Key))
	mailSink, errSink := email.New(sinks.Instance{Name: "mail"},
		email.Config{SMTP: smtp, From: "Waybill <hello@example.com>", FS: templates, Templates: "templates", Locale: "en"})
	if err := errors.Join(errTable, errTypes, errSink); err != nil {
		return nil, nil, err
	}
	engine, err := forwarder.New(forwarder.Config{
		Store: log, Types: types,
		Sinks:  map[string]forwarder.Sink{"mail": {Sink: mailSink, Hooks: forwarder.Hooks{Parked: markQueued, Delivered: markSent}}},
		Routes: route.Routes{"customer.signed-up": route.To("mail")},
	})
	if err != nil {
		return nil, nil, err
	}
	// Each commit wakes the forwarder, which sends the mail at once.
	publisher, err := outbox.New(types, log, outbox.Config{Wake: engine.Wake})
	mux := http.NewServeMux()
	mux.Handle("POST /signup", &signups{db: db, publisher: publisher})
	return mux, engine, err
}

// signUp signs four people up, one of them with an address that has already signed up.
func signUp(url string, out io.Writer) error {
	for _, one := range []struct{ language, form string }{
		{"en", `{"name": "Ada", "email": "ada@example.com"}`},
		{"de-AT, en;q=0.5", `{"name": "Grace", "email": "grace@example.com"}`},
		{"en", `{"name": "Mallory", "email": "ada@example.com"}`},
		{"sv", `{"name": "Linus", "email": "linus@example.com", "invited_by": "ada@example.com"}`},
	} {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(one.form))
		if err != nil {
			return err
		}
		request.Header.Set("Accept-Language", one.language)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		fmt.Fprintf(out, "POST /signup %s: %s\n", one.form, response.Status)
	}
	return nil
}

// waitForMails returns once all users are Sent, with an error after 30 seconds.
func waitForMails(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for pending := 1; pending > 0; time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM users WHERE status <> 'Sent'`).Scan(&pending); err != nil {
			return fmt.Errorf("wait until all mails are sent: %w", err)
		}
	}
	return nil
}

// report prints the users and the mails. It returns an error for each user who is not Sent, and for
// each mail to a person who is not a user.
func report(ctx context.Context, db *sql.DB, mails []smtptest.Message, out io.Writer) error {
	rows, err := db.QueryContext(ctx, `SELECT name, email, status FROM users ORDER BY email`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var wrong []error
	var users []string
	for rows.Next() {
		var user mail.Address
		var status string
		if err := rows.Scan(&user.Name, &user.Address, &status); err != nil {
			return err
		}
		fmt.Fprintf(out, "user %s: %s\n", &user, status)
		if users = append(users, user.String()); status != "Sent" {
			wrong = append(wrong, fmt.Errorf("%s is still %s", &user, status))
		}
	}
	for _, m := range mails {
		to := m.Header.Get("To")
		fmt.Fprintf(out, "mail to %s: %s\n", strings.Join(m.To, ", "), m.Subject())
		if !slices.Contains(users, to) {
			wrong = append(wrong, fmt.Errorf("%s got a mail but is not a user", to))
		}
	}
	return errors.Join(append(wrong, rows.Err())...)
}
