package route_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

func placed(payload string) *notification.Envelope {
	return &notification.Envelope{
		ID: "7f", Type: "order.placed", Version: 2, Key: "order-1", OccurredOn: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		Metadata: notification.Metadata{"tenant": "acme", "content-type": "application/json"},
		Payload:  []byte(payload),
	}
}

func TestConditionsCanUseAllPartsOfANotification(t *testing.T) {
	t.Parallel()
	order := placed(`{"id": 12345678901234567, "total": 120.5, "lines": [{"sku": "a"}, {"sku": "b"}], "customer": {"country": "DE"}, "gift": null}`)
	for when, want := range map[string]bool{
		``:                                         true,
		`payload.total > 100`:                      true,
		`payload.total > 120.5`:                    false,
		`payload.id == 12345678901234567`:          true,
		`payload.id == 12345678901234568`:          false,
		`any(payload.lines, .sku == "b")`:          true,
		`len(payload.lines) == 2`:                  true,
		`payload.customer.country in ["DE", "FR"]`: true,
		`payload.shipping?.country == "DE"`:        false,
		`(payload.discount ?? 0) == 0`:             true,
		`payload.gift == nil`:                      true,
		`metadata.tenant == "acme"`:                true,
		`metadata["no-such"] == ""`:                true,
		`type == "order.placed" && version >= 2`:   true,
		`key startsWith "order-" and id == "7f"`:   true,
		`occurred_on.Year() == 2026`:               true,
		`$env["payload"].total > 100`:              true,
		`payload.customer.country matches "^D"`:    true,
	} {
		table := newTable(t, route.Routes{"order.*": {{Sink: "partner", When: when}}}, []string{"partner"}, nil)
		admitted, err := table.To("partner").Admits(t.Context(), order)
		require.NoError(t, err, when)
		require.Equal(t, want, admitted, when)
		shaped, err := table.To("partner").Shape(t.Context(), order)
		require.NoError(t, err, when)
		if want {
			require.Same(t, order, shaped, when)
		} else {
			require.Nil(t, shaped, when)
		}
	}
}

func TestAConditionThatCannotBeEvaluatedIsAnError(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]string{
		`payload.total > 100`:          "expression: routes.*: when: invalid operation: <nil> > int (1:15)",
		`payload.customer.name == "x"`: "expression: routes.*: when: cannot fetch name from <nil> (1:18)",
		`payload.name > 3`:             "expression: routes.*: when: invalid operation: string > int (1:14)",
		`payload.name`:                 "expression: routes.*: when: invalid operation: bool(string) (1:1)",
		`payload.precise > 1`:          "expression: routes.*: when: invalid operation: json.Number > int (1:17)",
		`payload.list[3] == 1`:         "expression: routes.*: when: index out of range: 3 (array length is 1) (1:13)",
	} {
		table := newTable(t, route.Routes{"*": {{Sink: "partner", When: when}}}, []string{"partner"}, nil)
		e := placed(`{"name": "x", "precise": 0.1234567890123456789, "list": [1]}`)
		admitted, err := table.To("partner").Admits(t.Context(), e)
		require.ErrorIs(t, err, route.ErrExpression, when)
		require.ErrorContains(t, err, want, when)
		require.NotContains(t, err.Error(), "\n")
		require.False(t, admitted)
		shaped, err := table.To("partner").Shape(t.Context(), e)
		require.ErrorIs(t, err, route.ErrExpression)
		require.Nil(t, shaped)
	}

	table := newTable(t, route.Routes{"*": {{Sink: "a", When: `payload.x == 1`}, {Sink: "b", When: `key == "order-1"`}}}, []string{"a", "b"}, nil)
	_, err := table.To("a").Admits(t.Context(), placed("\x08\x01"))
	require.ErrorContains(t, err, "expression: routes.*: when: the payload is not JSON, which expressions need: invalid character")
	admitted, err := table.To("b").Admits(t.Context(), placed("\x08\x01"))
	require.NoError(t, err, "a condition that does not use the payload does not decode it")
	require.True(t, admitted)
}

func TestAllMistakesOfExpressionsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := route.New(route.Routes{"order.*": {
		{Sink: "a", When: `payload.total >`},
		{Sink: "a", When: `totl > 3`},
		{Sink: "a", When: `"yes"`},
		{Sink: "a", When: `now() > occurred_on`},
		{Sink: "a", When: `key > 3`, Payload: map[string]string{"x": `payload.`, "y": `tenant`, "z": `key`}},
	}}, []string{"a"}, nil)
	require.ErrorIs(t, err, route.ErrExpression)
	require.EqualError(t, err, `routes.order.* to a: when: expression: "payload.total >": unexpected token EOF (1:15)
routes.order.* to a: when: expression: "totl > 3": unknown name totl (1:1)
routes.order.* to a: when: expression: "\"yes\"": expected bool, but got string
routes.order.* to a: when: expression: "now() > occurred_on": unknown name now (1:1)
routes.order.* to a: when: expression: "key > 3": invalid operation: > (mismatched types string and int) (1:5)
payload.x: expression: "payload.": unexpected end of expression (1:8)
payload.y: expression: "tenant": unknown name tenant (1:1)`)
}

func TestARulePicksAPayloadAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"order.placed": {{Sink: "partner", Payload: map[string]string{
		"order":    `payload.id`,
		"amount":   `payload.total`,
		"exact":    `payload.rate`,
		"big":      `payload.big`,
		"skus":     `map(payload.lines, .sku)`,
		"tenant":   `metadata.tenant`,
		"at":       `occurred_on`,
		"note":     `payload?.note`,
		"constant": `"<shop>"`,
	}}}}, []string{"partner"}, nil)
	order := placed(`{"id": 12345678901234567, "total": 120.50, "rate": 0.12345678901234567890, "big": 123456789012345678901234567890, "lines": [{"sku": "a"}, {"sku": "b"}], "secret": 1}`)
	before := *order
	order.Metadata = notification.Metadata{"tenant": "acme", "content-type": "text/json"}
	shaped, err := table.To("partner").Shape(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, `{"amount":120.5,"at":"2026-02-03T04:05:06Z","big":123456789012345678901234567890,"constant":"<shop>","exact":0.12345678901234567890,"note":null,"order":12345678901234567,"skus":["a","b"],"tenant":"acme"}`,
		string(shaped.Payload))
	require.True(t, json.Valid(shaped.Payload))
	require.Equal(t, "application/json", shaped.Metadata["content-type"])
	require.Equal(t, before.Payload, order.Payload, "the stored envelope is not changed")
	require.Equal(t, "text/json", order.Metadata["content-type"])
	want := *order
	want.Payload, want.Metadata = shaped.Payload, shaped.Metadata
	require.Equal(t, want, *shaped)

	_, err = table.To("partner").Shape(t.Context(), placed(`{"lines": 3}`))
	require.ErrorIs(t, err, route.ErrExpression)
	require.ErrorContains(t, err, "routes.order.placed: payload.skus: ")
}

func TestTheClosestRuleThatHoldsCounts(t *testing.T) {
	t.Parallel()
	from := func(name string) map[string]string { return map[string]string{"from": fmt.Sprintf("%q", name)} }
	table := newTable(t, route.Routes{
		"*":           {{Sink: "a", Payload: from("all")}},
		"order.*":     {{Sink: "a", When: `version > 1`, Payload: from("order")}},
		"order.eu.*":  {{Sink: "a", Payload: from("eu")}},
		"order.p":     {{Sink: "a", When: `key == "x"`, Payload: from("first")}, {Sink: "a", When: `key == "y"`, Payload: from("second")}, {Sink: "b"}},
		"order.never": {{Sink: "b", When: "false"}},
	}, []string{"a", "b"}, nil)
	for _, test := range []struct {
		typ, key string
		version  int
		want     string
	}{
		{"order.p", "x", 2, "first"},
		{"order.p", "y", 2, "second"},
		{"order.p", "z", 2, "order"},
		{"order.p", "z", 1, "all"},
		{"order.eu.moved", "z", 2, "eu"},
		{"parcel", "x", 1, "all"},
	} {
		e := &notification.Envelope{ID: "1", Type: test.typ, Key: test.key, Version: test.version, Payload: []byte(`{}`)}
		shaped, err := table.To("a").Shape(t.Context(), e)
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"from": %q}`, test.want), string(shaped.Payload), test)
	}

	var steps []string
	for _, s := range table.To("a").Steps("order.p") {
		steps = append(steps, s.Pattern+" "+s.When)
	}
	require.Equal(t, []string{`order.p key == "x"`, `order.p key == "y"`, `order.* version > 1`, `* `}, steps)

	require.False(t, table.To("a").Plain())
	require.Equal(t, []string{"a", "b"}, table.Sinks("order.never"), "Sinks ignores conditions")
	plain := newTable(t, route.Routes{"*": route.To("a", "b")}, []string{"a", "b"}, nil)
	require.True(t, plain.To("a").Plain())
}

func ExampleRule() {
	table, err := route.New(route.Routes{"order.placed": {
		{Sink: "events"},
		{Sink: "partner", When: `payload.total > 100`, Payload: map[string]string{"order": "payload.id"}},
	}}, []string{"events", "partner"}, nil)
	if err != nil {
		panic(err)
	}
	large := &notification.Envelope{Type: "order.placed", Payload: []byte(`{"id": "17", "total": 130, "card": "4111"}`)}
	small := &notification.Envelope{Type: "order.placed", Payload: []byte(`{"id": "18", "total": 13}`)}
	partner := table.To("partner")
	for _, order := range []*notification.Envelope{large, small} {
		gets, err := partner.Shape(context.Background(), order)
		switch {
		case err != nil:
			panic(err)
		case gets == nil:
			fmt.Println("passes partner by")
		default:
			fmt.Printf("%s\n", gets.Payload)
		}
	}
	// Output:
	// {"order":"17"}
	// passes partner by
}

// nested returns a payload with n items that no condition matches.
func nested(n int) []byte {
	return []byte(`{"items": [` + strings.TrimSuffix(strings.Repeat(`{"sku": "none"},`, n), ",") + `]}`)
}

func TestAnExpressionThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`any(payload.items, let a = #; any(payload.items, #.sku == a.sku + "x"))`,
		`any(payload.items, any(payload.items, any(payload.items, #.sku == "x")))`,
		`len(filter(payload.items, "y" in map(payload.items, .sku))) > 0`,
		`any(payload.items, let a = #; {"sku": "y"} in payload.items)`,
		`sum(map(payload.items, len(filter(payload.items, .sku == "x")))) > 0`,
		`any(1..10000, any(1..10000, # < 0))`,
		`any(payload.items, string(payload) matches "(a|b)*z")`,
		`any(payload.items, lower(string(payload)) contains "zzz")`,
		`reduce(payload.items, #acc + string(payload), "") == ""`,
		`any(payload.items, sum(map(payload.items, 1)) < 0)`,
	} {
		table := newTable(t, route.Routes{"t": {{Sink: "s", When: when}}}, []string{"s"}, nil)
		p := table.To("s")
		_, err := p.Admits(t.Context(), &notification.Envelope{Type: "t", Payload: nested(8000)})
		require.ErrorIs(t, err, route.ErrExpression, when)
		require.ErrorContains(t, err, "too long", when)
	}
}

func TestLoopsOverLargeListsAreAllowed(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`any(payload.items, .sku == "x")`,
		`all(payload.items, .sku in ["none", "some"])`,
		`count(payload.items, .sku startsWith "none") == 1000`,
		`any(payload.items[:300], let a = #; any(payload.items[:300], .sku != a.sku)) == false`,
		`len(payload.items) == 1000 and payload.items[0].sku == "none"`,
	} {
		table := newTable(t, route.Routes{"t": {{Sink: "s", When: when}}}, []string{"s"}, nil)
		p := table.To("s")
		_, err := p.Admits(t.Context(), &notification.Envelope{Type: "t", Payload: nested(1000)})
		require.NoError(t, err, when)
	}
}
