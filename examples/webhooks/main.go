// Webhooks shows both ends of a webhook. The shop signs its requests as Standard
// Webhooks says; the partner verifies them with the standard's own library and
// refuses a forgery. All that counts is in the body, which is signed: an envelope with
// id, type and payload. A request whose answer got lost comes again, and the partner
// knows it by its id. In the middle the partner changes to a new secret, without a
// word to the shop: the shop signs with both.
//
//	go run ./examples/webhooks
//
// It ends with code 1 if the partner books anything but each order once.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// OrderPlaced is the notification.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
}

// Key keeps a customer's orders in their order.
func (o OrderPlaced) Key() string { return o.Customer }

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // the output tells the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	before, after := newSecret(), newSecret()
	p, err := newPartner(out, before, after, stop)
	if err != nil {
		return err
	}
	web := httptest.NewServer(p)
	defer web.Close()
	if err := forge(ctx, web.URL); err != nil {
		return err
	}
	if err := shop(ctx, web.URL, before, after); err != nil {
		return err
	}
	return p.check()
}

// newSecret makes what the shop and the partner share; no one else may know it.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// shop publishes three orders and delivers them until ctx ends.
func shop(ctx context.Context, url string, secrets ...string) error {
	sink, err := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{URL: url, Secrets: secrets})
	if err != nil {
		return err
	}
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
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Key)); err != nil {
		return err
	}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"order.placed": route.To("partner")},
		Sinks:  map[string]forwarder.Sink{"partner": {Sink: sink, Retry: forwarder.Retry{Initial: 100 * time.Millisecond}}},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Publish(ctx, tx, OrderPlaced{"o-1", "ada"}, OrderPlaced{"o-2", "ada"}, OrderPlaced{"o-3", "ada"})
	})
	if err != nil {
		return err
	}
	return engine.Run(ctx)
}

// forge sends the partner an order that the shop knows nothing of.
func forge(ctx context.Context, url string) error {
	order := `{"id": "forged", "type": "order.placed", "version": 1, "payload": {"order_id": "o-666", "customer": "mallory"}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(order))
	if err != nil {
		return err
	}
	request.Header.Set("webhook-id", "forged")
	request.Header.Set("webhook-timestamp", fmt.Sprint(time.Now().Unix()))
	request.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(slices.Repeat([]byte("?"), 32)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusUnauthorized {
		return errors.New("a forgery is taken: " + response.Status)
	}
	return nil
}
