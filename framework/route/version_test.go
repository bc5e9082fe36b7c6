package route_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

type (
	invoiceV1 struct {
		Euros int `json:"euros"`
	}
	invoice struct {
		Cents int `json:"cents"`
	}
)

// invoices returns a registry with a type in version 3, which reads version 2.
func invoices(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[invoice](types, "invoice.sent", registry.Aliases("invoice"), registry.Version(3), registry.Oldest(2),
		registry.Upcast(2, func(old invoiceV1) (invoice, error) {
			if old.Euros < 0 {
				return invoice{}, errors.New("less than nothing")
			}
			return invoice{100 * old.Euros}, nil
		})))
	return types
}

func TestAnExpressionReadsThePayloadInTheNewestVersionOfItsType(t *testing.T) {
	t.Parallel()
	rule := route.Rule{Sink: "s", When: `payload.cents > 500`, Payload: map[string]string{"sum": "payload.cents", "stored": "version"}}
	for name, c := range map[string]struct {
		typ     string
		version int
		payload string
		shaped  string // "": no condition holds
		fails   error
	}{
		"the newest version":         {"invoice.sent", 3, `{"cents": 700}`, `{"stored":3,"sum":700}`, nil},
		"an older version":           {"invoice.sent", 2, `{"euros": 7}`, `{"stored":2,"sum":700}`, nil},
		"an alias":                   {"invoice", 2, `{"euros": 7}`, `{"stored":2,"sum":700}`, nil},
		"an older one, not admitted": {"invoice.sent", 2, `{"euros": 5}`, "", nil},
		"a newer version":            {"invoice.sent", 4, `{"total": {"cents": 700}}`, "", route.ErrNewerVersion},
		"before the oldest":          {"invoice.sent", 1, `{"cents": 700}`, "", registry.ErrVersion},
		"what the upcaster refuses":  {"invoice.sent", 2, `{"euros": -1}`, "", registry.ErrDecode},
		"a type that is not known":   {"invoice.paid", 9, `{"cents": 700}`, `{"stored":9,"sum":700}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := newTable(t, route.Routes{"*": {rule}}, []string{"s"}, invoices(t))
			e := &notification.Envelope{ID: "1", Type: c.typ, Version: c.version, Payload: []byte(c.payload)}
			admitted, err := table.To("s").Admits(t.Context(), e)
			require.Equal(t, c.shaped != "", admitted)
			if c.fails != nil {
				require.ErrorIs(t, err, route.ErrExpression)
				require.ErrorIs(t, err, c.fails)
				require.Equal(t, name == "a newer version", errors.Is(err, route.ErrNewerVersion), "only a newer program can read more")
			}
			shaped, err := table.To("s").Shape(t.Context(), e)
			switch {
			case c.fails != nil:
				require.ErrorIs(t, err, c.fails)
			case c.shaped == "":
				require.NoError(t, err)
				require.Nil(t, shaped)
			default:
				require.NoError(t, err)
				require.JSONEq(t, c.shaped, string(shaped.Payload))
			}
			require.Equal(t, c.payload, string(e.Payload))
		})
	}
}

func TestAPickedPayloadHasTheNewestVersion(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"payload.cents", "id"} {
		table := newTable(t, route.Routes{"*": {{Sink: "s", Payload: map[string]string{"v": from}}}}, []string{"s"}, invoices(t))
		shaped, err := table.To("s").Shape(t.Context(), &notification.Envelope{Type: "invoice.sent", Version: 2, Payload: []byte(`{"euros": 7}`)})
		require.NoError(t, err)
		require.Equal(t, 3, shaped.Version, "no reader takes it for version 2 and converts it")
	}
}

func TestARuleThatReadsNoPayloadPassesAnyVersionUnchanged(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2, 4} {
		for _, when := range []string{"", `version > 0`} {
			table := newTable(t, route.Routes{"*": {{Sink: "s", When: when}}}, []string{"s"}, invoices(t))
			e := &notification.Envelope{Type: "invoice.sent", Version: version, Payload: []byte("no JSON")}
			shaped, err := table.To("s").Shape(t.Context(), e)
			require.NoError(t, err)
			require.Same(t, e, shaped)
		}
	}
	table := newTable(t, route.Routes{"*": {{Sink: "s", When: `payload.cents > 500`}}}, []string{"s"}, invoices(t))
	old := &notification.Envelope{Type: "invoice.sent", Version: 2, Payload: []byte(`{"euros": 7}`)}
	shaped, err := table.To("s").Shape(t.Context(), old)
	require.NoError(t, err)
	require.Same(t, old, shaped, "the sink gets what is stored")
}
