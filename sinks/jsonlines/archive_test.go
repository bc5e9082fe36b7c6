package jsonlines_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

type PaymentMade struct {
	ID     string  `json:"id"`
	Amount float64 `json:"amount"`
	Card   string  `json:"card"`
}

type ShopOpened struct {
	City string `json:"city"`
}

// docs/sinks-jsonlines.md shows declareArchive.
func declareArchive(o *waybill.Outbox, path string, inspector sinks.Sink) error {
	archive, err := jsonlines.New(jsonlines.Config{Path: path})
	if err != nil {
		return err
	}
	o.Deliver("archive", archive, "*") // all types, unchanged, except the one below
	o.Route("payment.made", waybill.Rule{
		Sink:    "archive",
		Payload: map[string]string{"payment": "payload.id", "amount": "payload.amount"}, // leaves out the card
	})
	o.Deliver("inspector", inspector)
	o.Route("payment.made", waybill.Rule{Sink: "inspector", When: `payload.amount >= 1000`})
	return nil
}

func TestAnArchiveHasOnlyThePayloadOfItsRoute(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[PaymentMade](o, "payment.made")
	waybill.Register[ShopOpened](o, "shop.opened")
	var inspected []string
	path := filepath.Join(folder, "archive.jsonl")
	require.NoError(t, declareArchive(o, path, sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		inspected = append(inspected, string(d.Payload))
		return "seen", nil
	})))
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, PaymentMade{"p-1", 12.5, "4111111111111111"}, PaymentMade{"p-2", 2400, "4111111111111111"}, ShopOpened{"Vienna"})
	}))
	c, err := o.Forwarding()
	require.NoError(t, err)
	waybilltest.Drain(t, c)

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var got []string
	for text := range strings.Lines(string(content)) {
		var line jsonlines.Line
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		got = append(got, line.Type+" "+string(line.Payload))
	}
	require.ElementsMatch(t, []string{
		`payment.made {"amount":12.5,"payment":"p-1"}`,
		`payment.made {"amount":2400,"payment":"p-2"}`,
		`shop.opened {"city":"Vienna"}`,
	}, got)
	require.Equal(t, []string{`{"id":"p-2","amount":2400,"card":"4111111111111111"}`}, inspected)
}
