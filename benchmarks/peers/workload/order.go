// Package workload has the orders that every contender delivers: about 300 bytes of JSON, over 1,000
// keys, each with a number by which receivers recognize it.
package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// Keys is the number of keys. Consecutive orders have different keys.
	Keys = 1000
	// Type is the type of the orders, in outboxes that have types.
	Type = "order.placed"
)

// Order is the payload. Its first field is the shortest, so it stays first where a
// database sorts the fields, as jsonb does.
type Order struct {
	ID       string    `json:"id"`
	Customer string    `json:"customer"`
	PlacedOn time.Time `json:"placed_on"`
	Currency string    `json:"currency"`
	Cents    int64     `json:"cents"`
	Lines    []Line    `json:"lines"`
	Note     string    `json:"note"`
}

// Line is one article of an Order.
type Line struct {
	Article string `json:"article"`
	Count   int    `json:"count"`
	Cents   int64  `json:"cents"`
}

var (
	placedOn = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)
	note     = "please ring twice " + strings.Repeat("and leave it with the neighbour ", 2)
)

// IDDigits is the number of digits of an id.
const IDDigits = 10

// New returns the order with a number. The first is 0.
func New(number int) Order {
	return Order{
		ID:       ID(number),
		Customer: Key(number),
		PlacedOn: placedOn,
		Currency: "EUR",
		Cents:    129_900,
		Lines: []Line{
			{Article: "tea-green-250", Count: 2, Cents: 1_290},
			{Article: "pot-iron-1200", Count: 1, Cents: 127_320},
		},
		Note: note,
	}
}

// ID returns the id of an order.
func ID(number int) string { return fmt.Sprintf("%0*d", IDDigits, number) }

// Key returns the key of an order. Orders of one key should arrive in the order of their numbers.
func Key(number int) string { return fmt.Sprintf("customer-%03d", number%Keys) }

// JSON returns the payload of the order.
func (o Order) JSON() []byte {
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err) // a struct of plain fields
	}
	return payload
}

var idField = []byte(`"id":`)

// Number finds an order's number in its JSON, which may have spaces after the colon.
func Number(payload []byte) (number int, ok bool) {
	at := bytes.Index(payload, idField)
	if at < 0 {
		return 0, false
	}
	value := bytes.TrimLeft(payload[at+len(idField):], " ")
	if len(value) < IDDigits+2 || value[0] != '"' || value[IDDigits+1] != '"' {
		return 0, false
	}
	number, err := strconv.Atoi(string(value[1 : IDDigits+1]))
	return number, err == nil && number >= 0
}
