// Package contracts runs the blocks of docs/contracts.md.
package contracts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/waybilltest"
)

// OrderPlaced says that a customer has placed an order.
type OrderPlaced struct {
	// Order is the number that the customer sees.
	Order  string   `json:"order"`
	State  string   `json:"state" jsonschema:"enum=new,enum=paid"`
	Mail   string   `json:"mail,omitempty" jsonschema:"format=email,title=Address"`
	Total  Money    `json:"total"`
	Coupon *string  `json:"coupon" jsonschema_description:"Of the customer, if there is one."`
	Lines  []string `json:"lines" jsonschema:"minItems=1"`
}

// Money encodes itself as a text, such as "19.99 EUR".
type Money struct {
	Cents    int64
	Currency string
}

// MarshalJSON implements json.Marshaler.
func (m Money) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `"%d.%02d %s"`, m.Cents/100, m.Cents%100, m.Currency), nil
}

// JSONSchema says what MarshalJSON writes.
func (Money) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^\d+\.\d\d [A-Z]{3}$`}
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Money) UnmarshalJSON(text []byte) error {
	var euros int64
	_, err := fmt.Sscanf(string(text), `"%d.%d %3s"`, &euros, &m.Cents, &m.Currency)
	m.Cents += 100 * euros
	return err
}

func (o OrderPlaced) key() string { return o.Order }

var o = func() *waybill.Outbox {
	o := waybill.SQLite(nil, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.key),
		waybill.Describe(waybill.Description{
			Title:    "Order placed",
			Text:     "A customer has placed an order. It may be paid already.",
			Owner:    "shop@example.com",
			Examples: []any{OrderPlaced{Order: "o-17", State: "new", Total: Money{1999, "EUR"}, Lines: []string{"kite"}}},
		}))
	return o
}()

func TestTheTypesKeepTheirContracts(t *testing.T) {
	waybilltest.Contracts(t, o.Types(), "schemas")
}

func TestTheGuideShowsTheSchema(t *testing.T) {
	page, err := os.ReadFile("../../contracts.md")
	require.NoError(t, err)
	schema, err := os.ReadFile("schemas/order.placed.v1.json")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(page), "```json\n"+string(schema)+"```\n"), "copy it from docs/walkthrough/contracts/schemas")
}

func TestTheGuideQuotesWhatIsWrongWithAPayload(t *testing.T) {
	set, err := contract.FromTypes(o.Types())
	require.NoError(t, err)
	err = set.Validate("order.placed", 1, []byte(`{"order": 17, "state": "lost", "total": "19.99 EUR", "coupon": null, "lines": []}`))
	page, missing := os.ReadFile("../../contracts.md")
	require.NoError(t, missing)
	require.True(t, strings.Contains(string(page), "\n    "+err.Error()+"\n"), err.Error())
}
