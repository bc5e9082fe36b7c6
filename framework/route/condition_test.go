package route_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func compiled(t *testing.T, text string) *route.Condition {
	t.Helper()
	c, err := route.CompileCondition(text)
	require.NoError(t, err, text)
	return c
}

func TestAConditionOutsideOfARouteHoldsAsInOne(t *testing.T) {
	t.Parallel()
	order := placed(`{"total": 120.5}`)
	for text, want := range map[string]bool{"": true, `payload.total > 100`: true, `payload.total > 200`: false, `metadata.tenant == "acme" && version == 2`: true} {
		holds, err := compiled(t, text).Holds(t.Context(), order, nil)
		require.NoError(t, err, text)
		require.Equal(t, want, holds, text)
	}
	holds, err := new(route.Condition).Holds(t.Context(), order, nil)
	require.NoError(t, err)
	require.True(t, holds, "the zero value")

	for _, text := range []string{`payload.total >`, `now() == nil`, `payload.total + 1`, `tenant == "acme"`} {
		if c, err := route.CompileCondition(text); err == nil { // what is not a bool may show only when it is evaluated
			_, err = c.Holds(t.Context(), order, nil)
			require.ErrorIs(t, err, route.ErrExpression, text)
		} else {
			require.ErrorIs(t, err, route.ErrExpression, text)
		}
	}
	_, err = compiled(t, `payload.customer.name == "x"`).Holds(t.Context(), order, nil)
	require.EqualError(t, err, "expression: cannot fetch name from <nil> (1:18)")
}

func TestConditionsSeeTheNewestVersionUnderThePresentName(t *testing.T) {
	t.Parallel()
	type v1 struct{ Cents int }
	type v2 struct{ Euros int }
	types := registry.New()
	require.NoError(t, registry.Register[v2](types, "price.set", registry.Version(2), registry.Aliases("price.changed"),
		registry.Upcast(1, func(p v1) (v2, error) { return v2{p.Cents / 100}, nil })))
	c := compiled(t, `type == "price.set" && payload.Euros == 3`)
	e := &notification.Envelope{Type: "price.changed", Version: 1, Payload: []byte(`{"Cents": 300}`)}
	holds, err := c.Holds(t.Context(), e, types)
	require.NoError(t, err)
	require.True(t, holds)

	_, err = c.Holds(t.Context(), &notification.Envelope{Type: "price.set", Version: 3, Payload: []byte(`{}`)}, types)
	require.ErrorIs(t, err, route.ErrNewerVersion)
	require.ErrorIs(t, err, route.ErrExpression)
}

func TestAnErrorOfAConditionKeepsTextsOfTheNotificationApart(t *testing.T) {
	t.Parallel()
	e := placed(`{"email": "ada@shop.example", "list": ["(ada"]}`)
	e.Metadata = notification.Metadata{"since": "ada's birthday"}
	for text, brief := range map[string]string{
		`int(payload.email) > 1`: "it cannot be evaluated", `"x" matches payload.list[0]`: "it cannot be evaluated", `date(metadata.since) > date("2026-01-01")`: "it cannot be evaluated",
		`payload.gone.x == 1`: "cannot fetch x", `payload.email > 1`: "string > int",
	} {
		_, err := compiled(t, text).Holds(t.Context(), e, nil)
		require.ErrorIs(t, err, route.ErrExpression)
		require.Contains(t, sinks.Brief(err), brief)
		require.NotContains(t, sinks.Brief(err), "ada")
		require.Equal(t, strings.Contains(brief, "evaluated"), strings.Contains(err.Error(), "ada"))
	}
}

func TestEachConditionHasItsOwnBudget(t *testing.T) {
	t.Parallel()
	facts := route.NewFacts(&notification.Envelope{Payload: hostile(t)}, nil)
	_, err := facts.Holds(t.Context(), compiled(t, `any(payload.items, any(payload.items, # > 1))`))
	require.ErrorIs(t, err, route.ErrExpression)
	for range 3 { // together they use more than the budget of one
		holds, err := facts.Holds(t.Context(), compiled(t, `any(1..70000, # > 69999)`))
		require.NoError(t, err)
		require.True(t, holds)
	}
}

func TestAConditionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	facts := route.NewFacts(placed(`{}`), nil)
	c := compiled(t, `any(1..70000, # > 69999)`)
	_, err := facts.Holds(ended, c)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, route.ErrExpression)
	holds, err := facts.Holds(t.Context(), c)
	require.NoError(t, err)
	require.True(t, holds, "the next one has its own context")
}

func ExampleFacts() {
	large, err := route.CompileCondition(`payload.total > 100`)
	if err != nil {
		panic(err)
	}
	acme, err := route.CompileCondition(`metadata.tenant == "acme"`)
	if err != nil {
		panic(err)
	}
	facts := route.NewFacts(&notification.Envelope{Type: "order.placed", Metadata: notification.Metadata{"tenant": "acme"}, Payload: []byte(`{"total": 70}`)}, nil)
	for _, c := range []*route.Condition{large, acme} {
		fmt.Println(facts.Holds(context.Background(), c))
	}
	// Output:
	// false <nil>
	// true <nil>
}
