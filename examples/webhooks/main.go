// Webhooks is a shop whose customers get its notifications at their own endpoints. Two companies
// order at the shop, acme and globex, and each is a tenant. They place orders on a page of the shop,
// and manage their endpoints in the portal. The servers of both run here too: they verify the
// signature of each request, and show what they got.
//
//	go run ./examples/webhooks
//
// It serves two addresses of this machine until SIGINT, and forgets everything then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // no logs: the program prints what happens
	at := flag.String("shop", "127.0.0.1:8080", "address of the shop, on this machine")
	customers := flag.String("customers", "127.0.0.1:8081", "address of the customers' servers, on this machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *at, *customers); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

// run serves the shop and the customers' servers, and delivers, until ctx is done.
func run(ctx context.Context, out io.Writer, at, customers string) error {
	folder, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return err
	}
	shopAt, err := listen(at)
	if err != nil {
		return err
	}
	defer shopAt.Close()
	customersAt, err := listen(customers)
	if err != nil {
		return err
	}
	defer customersAt.Close()

	s := &shop{db: db, outbox: waybill.SQLite(db, waybill.SQLiteConfig{}), out: out, sessions: make(map[string]string)}
	if err := s.open(ctx); err != nil {
		return err
	}
	for _, tenant := range tenants {
		c := &customer{name: tenant, url: "http://" + customersAt.Addr().String() + "/" + tenant, out: out}
		if err := s.signUp(ctx, c); err != nil {
			return err
		}
		s.customers = append(s.customers, c)
	}
	pages, err := s.pages()
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return serve(ctx, shopAt, pages) })
	running.Go(func() error { return serve(ctx, customersAt, s.customers.handler()) })
	running.Go(func() error { return s.outbox.Run(ctx) })
	fmt.Fprintf(out, "open http://%s\n", shopAt.Addr())
	return running.Wait()
}

// listen listens at an address of this machine that others cannot reach: anyone can log in here.
func listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("%s: other machines could reach it; use 127.0.0.1", address)
	}
	return net.Listen("tcp", address)
}

// serve serves until ctx is done.
func serve(ctx context.Context, at net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(at); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
