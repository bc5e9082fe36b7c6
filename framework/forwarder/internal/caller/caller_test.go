package caller_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func pathOf(t *testing.T, rules ...route.Rule) *route.Path {
	t.Helper()
	for i := range rules {
		rules[i].Sink = "s"
	}
	table, err := route.New(route.Routes{"t": rules}, []string{"s"}, nil)
	require.NoError(t, err)
	return table.To("s")
}

func TestExpensiveConditionsAreEvaluatedInTheCall(t *testing.T) {
	t.Parallel()
	c := caller.Caller{Path: pathOf(t, route.Rule{When: `any(payload, any(payload, # == 2))`})}
	slow := append(append([]byte{'['}, bytes.Repeat([]byte("1,"), 400)...), "1]"...) // about 160,000 iterations
	page := store.Page{Envelopes: make([]notification.Envelope, 200)}
	for i := range page.Envelopes {
		page.Envelopes[i] = notification.Envelope{Type: "t", Payload: slow}
	}
	require.False(t, c.PassesBy(t.Context(), page)[199])
	synctest.Test(t, func(t *testing.T) { // no time passes meanwhile
		require.True(t, c.PassesBy(t.Context(), store.Page{Envelopes: page.Envelopes[:1]})[0])
	})

	results := c.Call(t.Context(), c.Batcher, []*notification.Delivery{{Envelope: &page.Envelopes[199]}}, nil, nil, nil)
	require.ErrorIs(t, results[0].Err, caller.ErrPassesBy)
}

func TestWhatIsCollectedIsForTheSink(t *testing.T) {
	t.Parallel()
	c := caller.Caller{Groups: &caller.Groups{}, Path: pathOf(t, route.Rule{When: `any(payload, any(payload, # == 2))`})}
	slow := append(append([]byte{'['}, bytes.Repeat([]byte("1,"), 400)...), "1]"...)
	page := store.Page{Envelopes: make([]notification.Envelope, 14)}
	for i := range page.Envelopes {
		page.Envelopes[i] = notification.Envelope{Type: "t", Key: "k", Payload: slow}
	}
	page.Envelopes[12].Payload = []byte("[2]")
	page.Envelopes[13].Payload = []byte("7") // its condition fails
	passesBy := c.PassesBy(t.Context(), page)
	require.Equal(t, []bool{true, false, false}, passesBy[11:], "however long it takes")
	require.Equal(t, []string{"", "k", ""}, c.GroupsOf(t.Context(), page, passesBy)[11:])
}

// batcher is a batch sink that answers with a function.
type batcher func(batch []*notification.Delivery) []sinks.Result

func (b batcher) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", errors.New("not one by one")
}
func (batcher) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 10} }
func (b batcher) DeliverBatch(_ context.Context, batch []*notification.Delivery) []sinks.Result {
	return b(batch)
}

func TestEachDeliveryOfABatchHasAResult(t *testing.T) {
	t.Parallel()
	batch := make([]*notification.Delivery, 3)
	for i := range batch {
		batch[i] = &notification.Delivery{Envelope: &notification.Envelope{Type: "t"}}
	}
	for name, rules := range map[string][]route.Rule{"as they are": {{}}, "shaped": {{Payload: map[string]string{"type": "type"}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := caller.Caller{Path: pathOf(t, rules...), Batcher: batcher(func([]*notification.Delivery) []sinks.Result { return []sinks.Result{{Receipt: "ok"}} })}
			results := c.Call(t.Context(), c.Batcher, batch, func(int) bool { return false }, nil, nil)
			require.Len(t, results, 3)
			require.EqualValues(t, "ok", results[0].Receipt)
			require.ErrorIs(t, results[2].Err, caller.ErrResults)

			c.Batcher = batcher(func([]*notification.Delivery) []sinks.Result { panic("bad") })
			results = c.Call(t.Context(), c.Batcher, batch, func(int) bool { return false }, nil, nil)
			require.Len(t, results, 3)
			require.ErrorIs(t, results[1].Err, caller.ErrPanic)
		})
	}
}

func TestDeliveriesAfterAFailedExpressionAreNotDelivered(t *testing.T) {
	t.Parallel()
	c := caller.Caller{Path: pathOf(t, route.Rule{When: `payload.n > 0`}), Batcher: batcher(func(batch []*notification.Delivery) []sinks.Result {
		require.Len(t, batch, 1)
		return []sinks.Result{{Receipt: "ok"}}
	})}
	batch := []*notification.Delivery{
		{Envelope: &notification.Envelope{Type: "t", Key: "a", Payload: []byte(`{"n": "text"}`)}},
		{Envelope: &notification.Envelope{Type: "t", Key: "a", Payload: []byte(`{"n": 1}`)}},
		{Envelope: &notification.Envelope{Type: "t", Key: "b", Payload: []byte(`{"n": 0}`)}},
		{Envelope: &notification.Envelope{Type: "t", Key: "b", Payload: []byte(`{"n": 1}`)}},
	}
	results := c.Call(t.Context(), c.Batcher, batch, func(i int) bool { return i == 1 || i == 3 }, nil, nil)
	require.ErrorIs(t, results[0].Err, route.ErrExpression)
	require.Error(t, results[1].Err)
	require.ErrorIs(t, results[2].Err, caller.ErrPassesBy)
	require.EqualValues(t, "ok", results[3].Receipt, "a delivery that skips the sink does not block the others")
}

func TestAnErrorHasAsMuchOfAnAnswerAsConfigured(t *testing.T) {
	t.Parallel()
	refusal := sinks.Permanent(sinks.WithAnswer(errors.New("422"), "ada is taken"))
	for limit, want := range map[int]string{0: "permanent: 422", 3: "permanent: 422: ada", 100: "permanent: 422: ada is taken"} {
		one := caller.Caller{Path: pathOf(t, route.Rule{}), AnswerBytes: limit, Deliver: func(context.Context, *notification.Delivery) (notification.Receipt, error) {
			return "", refusal
		}}
		several := batcher(func(batch []*notification.Delivery) []sinks.Result { return sinks.Failed(batch, refusal) })
		for _, to := range []caller.Batcher{nil, several} {
			results := one.Call(t.Context(), to, []*notification.Delivery{{Envelope: &notification.Envelope{Type: "t"}}}, nil, nil, nil)
			require.EqualError(t, results[0].Err, want)
			class, _ := sinks.Classify(results[0].Err)
			require.Equal(t, sinks.ClassPermanent, class)
		}
	}
}

func TestAConditionOnAPayloadOfANewerVersionWaitsForANewerProgram(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{ N int }](types, "t"))
	table, err := route.New(route.Routes{"t": {{Sink: "s", When: `payload.N > 0`}}}, []string{"s"}, types)
	require.NoError(t, err)
	c := caller.Caller{Path: table.To("s")}
	for version, want := range map[int]sinks.Class{1: sinks.ClassInvalid, 2: sinks.ClassUnknown} {
		page := store.Page{Envelopes: []notification.Envelope{{Type: "t", Version: version, Payload: []byte(`{}`)}}}
		require.False(t, c.PassesBy(t.Context(), page)[0])
		results := c.Call(t.Context(), c.Batcher, []*notification.Delivery{{Envelope: &page.Envelopes[0]}}, nil, nil, nil)
		class, _ := sinks.Classify(results[0].Err)
		require.Equal(t, want, class, "%v", results[0].Err)
	}
}
