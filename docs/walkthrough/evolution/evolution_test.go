// Package evolution runs the blocks of docs/evolution.md.
package evolution

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/waybilltest"
)

type OrderPlacedV1 struct{ Order string }

type OrderPlaced struct{ ID string }

func TestARenamedFieldIsReadFromTheOldVersion(t *testing.T) {
	o := waybill.SQLite(nil, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed",
		waybill.Version(2),
		waybill.Upcast(1, func(p OrderPlacedV1) (OrderPlaced, error) { return OrderPlaced{ID: p.Order}, nil }))
	read, err := o.Types().Decode(&notification.Envelope{Type: "order.placed", Version: 1, Payload: []byte(`{"Order": "o-17"}`)})
	require.NoError(t, err)
	require.Equal(t, OrderPlaced{ID: "o-17"}, read)
}

// PriceChangedV1 is the earlier payload.
type PriceChangedV1 struct {
	Item  string
	Euros int
}

// PriceSet is the new name of PriceChanged.
type PriceSet struct {
	Item  string
	Cents int
}

var o = func() *waybill.Outbox {
	o := waybill.SQLite(nil, waybill.SQLiteConfig{})
	waybill.Register[PriceSet](o, "price.set",
		waybill.Version(2), waybill.Aliases("price.changed"),
		waybill.Upcast(1, func(p PriceChangedV1) (PriceSet, error) { return PriceSet{p.Item, 100 * p.Euros}, nil }))
	return o
}()

func TestEveryVersionStillDecodes(t *testing.T) {
	waybilltest.Golden(t, o.Types(), "testdata/golden", PriceSet{Item: "i-1", Cents: 700})
}
