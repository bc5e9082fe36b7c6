package function_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	happened struct {
		N    int    `json:"n"`
		Text string `json:"text"`
	}
	placedV1 struct {
		Total string `json:"total"`
	}
	placed struct {
		Cents int `json:"cents"`
	}
	shipped struct {
		Order string `json:"order"`
	}
	unknown struct{}
)

func shop(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, errors.Join(
		registry.Register[happened](types, "sinktest.happened", registry.Version(2), registry.Oldest(2)),
		registry.Register[placed](types, "order.placed", registry.Version(2), registry.Aliases("order.created"),
			registry.Upcast(1, func(old placedV1) (placed, error) {
				if old.Total != "12.00" {
					return placed{}, errors.New("no total")
				}
				return placed{Cents: 1200}, nil
			})),
		registry.Register[*shipped](types, "order.shipped"),
	))
	return types
}

func delivery(typeName string, version int, payload string) *notification.Delivery {
	return &notification.Delivery{
		Envelope: &notification.Envelope{ID: notification.NewID(), Type: typeName, Version: version, Payload: []byte(payload)},
		Sink:     "shop", Attempt: 3,
	}
}

func open(t *testing.T, sink sinks.Sink) sinks.Sink {
	t.Helper()
	require.NoError(t, sink.(sinks.Opener).Open(t.Context()))
	return sink
}

func TestConformance(t *testing.T) {
	var (
		mu      sync.Mutex
		handled []notification.Envelope
	)
	failing := func(err error) func(*testing.T) sinks.Sink {
		return func(t *testing.T) sinks.Sink {
			return function.Handle(shop(t), func(context.Context, happened) error { return err })
		}
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			handled = nil
			return function.HandleDelivery(shop(t), func(_ context.Context, d *notification.Delivery, _ happened) error {
				e := *d.Envelope
				e.Metadata, e.Payload = e.Metadata.Clone(), slices.Clone(e.Payload)
				mu.Lock()
				defer mu.Unlock()
				handled = append(handled, e)
				return nil
			})
		},
		Received: func(*testing.T) []notification.Envelope { return handled },
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte("no JSON")
			return d
		},
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassTransient:   failing(errors.New("deadlock")),
			sinks.ClassPermanent:   failing(sinks.Permanent(errors.New("no such order"))),
			sinks.ClassUnavailable: failing(sinks.Unavailable(errors.New("no database"))),
		},
		Stuck: func(t *testing.T) sinks.Sink {
			return function.Handle(shop(t), func(ctx context.Context, _ happened) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
	})
}

func TestConformanceOfCollections(t *testing.T) {
	var (
		mu       sync.Mutex
		received []notification.Envelope
		handled  []sinktest.Collected
	)
	calling := func(t *testing.T, call func(context.Context) error) sinks.Sink {
		return function.Mux(shop(t), function.OnMany(func(ctx context.Context, _ []happened) error { return call(ctx) }))
	}
	failing := func(err error) func(*testing.T) sinks.Sink {
		return func(t *testing.T) sinks.Sink { return calling(t, func(context.Context) error { return err }) }
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			received, handled = nil, nil
			return function.Mux(shop(t), function.OnCollection(func(_ context.Context, c *sinks.Collection, all []happened) error {
				got := sinktest.Collected{ID: c.ID, Raw: fmt.Append(nil, all)}
				for _, d := range c.Members {
					e := *d.Envelope
					e.Metadata, e.Payload = e.Metadata.Clone(), slices.Clone(e.Payload)
					got.Members = append(got.Members, e)
				}
				mu.Lock()
				defer mu.Unlock()
				received, handled = append(received, got.Members...), append(handled, got)
				return nil
			}))
		},
		Received:  func(*testing.T) []notification.Envelope { return received },
		Collected: func(*testing.T) []sinktest.Collected { return handled },
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte("no JSON")
			return d
		},
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassTransient:   failing(errors.New("deadlock")),
			sinks.ClassPermanent:   failing(sinks.Permanent(errors.New("no such order"))),
			sinks.ClassUnavailable: failing(sinks.Unavailable(errors.New("no database"))),
		},
		Stuck: func(t *testing.T) sinks.Sink {
			return calling(t, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
	})
}

func collection(members ...*notification.Delivery) *sinks.Collection {
	return &sinks.Collection{Sink: "shop", ID: notification.NewID(), Group: "customer-1", Attempt: 2, Members: members}
}

// of is implemented by orders.
type of interface{ about() string }

func (placed) about() string   { return "placed" }
func (*shipped) about() string { return "shipped" }

func TestAFunctionGetsAllMembersInTheNewestVersion(t *testing.T) {
	var got []placed
	sink := open(t, function.Mux(shop(t), function.OnMany(func(_ context.Context, all []placed) error {
		got = append(got, all...)
		return nil
	}))).(sinks.Collector)
	_, err := sink.DeliverCollection(t.Context(), collection(
		delivery("order.placed", 1, `{"total":"12.00"}`), delivery("order.created", 2, `{"cents":13}`)))
	require.NoError(t, err)
	require.Equal(t, []placed{{1200}, {13}}, got)
}

func TestAnInterfaceHandlesTheTypesThatImplementIt(t *testing.T) {
	var got [][]string
	sink := open(t, function.Mux(shop(t), function.OnMany(func(ctx context.Context, all []of) error {
		list := []string{notification.Cause(ctx).Type}
		for _, o := range all {
			list = append(list, o.about())
		}
		got = append(got, list)
		return nil
	}))).(sinks.Collector)
	types, err := sink.(sinks.Typed).HandledTypes()
	require.NoError(t, err)
	require.Equal(t, []sinks.HandledType{{Name: "order.placed", Aliases: []string{"order.created"}}, {Name: "order.shipped", Aliases: nil}}, types)

	_, err = sink.DeliverCollection(t.Context(), collection(delivery("order.created", 2, `{}`), delivery("order.shipped", 1, `{}`)))
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), delivery("order.shipped", 1, `{}`))
	require.NoError(t, err)
	require.Equal(t, [][]string{{"order.shipped", "placed", "shipped"}, {"order.shipped", "shipped"}}, got)
}

func TestACollectionReachesTheFunctionsForAllItsTypes(t *testing.T) {
	var called []string
	many := func(name string) function.Handler {
		return function.OnMany(func(context.Context, []of) error {
			called = append(called, name)
			return nil
		})
	}
	sink := open(t, function.Mux(shop(t), many("first"),
		function.OnMany(func(context.Context, []placed) error {
			called = append(called, "placed")
			return nil
		}),
		function.On(func(context.Context, placed) error {
			t.Error("a function for one notification was called")
			return nil
		}),
		many("last"))).(sinks.Collector)
	deliver := func(all ...*notification.Delivery) []string {
		called = nil
		_, err := sink.DeliverCollection(t.Context(), collection(all...))
		require.NoError(t, err)
		return called
	}
	require.Equal(t, []string{"first", "placed", "last"}, deliver(delivery("order.placed", 2, `{}`), delivery("order.created", 2, `{}`)))
	require.Equal(t, []string{"first", "last"}, deliver(delivery("order.placed", 2, `{}`), delivery("order.shipped", 1, `{}`)))
}

func TestACollectionThatNoFunctionTakesIsUnknown(t *testing.T) {
	sink := open(t, function.Mux(shop(t),
		function.OnMany(func(context.Context, []placed) error { return errors.New("called") }),
		function.OnMany(func(context.Context, []*shipped) error { return errors.New("called") }),
		function.On(func(context.Context, happened) error { return errors.New("called") }),
	)).(sinks.Collector)
	for name, c := range map[string]struct {
		members []*notification.Delivery
		is      error
		says    string
	}{
		"of two types":            {[]*notification.Delivery{delivery("order.placed", 2, `{}`), delivery("order.shipped", 1, `{}`)}, function.ErrNoHandler, "no function takes many of order.placed, order.shipped; add one with OnMany"},
		"of a function for one":   {[]*notification.Delivery{delivery("sinktest.happened", 2, `{}`)}, function.ErrNoHandler, "many of sinktest.happened"},
		"with an unknown type":    {[]*notification.Delivery{delivery("order.placed", 2, `{}`), delivery("order.lost", 1, `{}`)}, registry.ErrUnknownType, "order.lost"},
		"with an unknown version": {[]*notification.Delivery{delivery("order.placed", 2, `{}`), delivery("order.placed", 9, `{}`)}, registry.ErrNewerVersion, "9"},
	} {
		_, err := sink.DeliverCollection(t.Context(), collection(c.members...))
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
		require.Equal(t, sinks.ClassUnknown, sinktest.Class(err), name)
	}
}

func TestOnlyASinkWithAFunctionForManyTakesCollections(t *testing.T) {
	_, ok := function.Handle(shop(t), func(context.Context, placed) error { return nil }).(sinks.Collector)
	require.False(t, ok)
	for name, h := range map[string]function.Handler{
		"no function": function.OnMany[placed](nil), "no such type": function.OnMany(func(context.Context, []unknown) error { return nil }),
		"no implementation": function.OnMany(func(context.Context, []error) error { return nil }),
	} {
		require.Error(t, function.Mux(shop(t), h).(sinks.Opener).Open(t.Context()), name)
	}
}

func TestAHandlerGetsTheNewestVersionUnderEveryName(t *testing.T) {
	var got []placed
	sink := open(t, function.Handle(shop(t), func(_ context.Context, p placed) error {
		got = append(got, p)
		return nil
	}))
	for _, d := range []*notification.Delivery{
		delivery("order.placed", 1, `{"total":"12.00"}`),
		delivery("order.placed", 2, `{"cents":1300}`),
		delivery("order.created", 1, `{"total":"12.00"}`),
	} {
		receipt, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
		require.Empty(t, receipt)
	}
	require.Equal(t, []placed{{1200}, {1300}, {1200}}, got)
}

func TestADeliveryThatCannotBeDecodedReachesNoHandler(t *testing.T) {
	sink := open(t, function.Handle(shop(t), func(context.Context, placed) error {
		t.Error("the handler was called")
		return nil
	}))
	for name, c := range map[string]struct {
		d     *notification.Delivery
		class sinks.Class
		is    error
		says  string
	}{
		"a broken payload":            {delivery("order.placed", 2, `{"cents":`), sinks.ClassInvalid, registry.ErrDecode, "at byte"},
		"an upcaster's refusal":       {delivery("order.placed", 1, `{}`), sinks.ClassInvalid, registry.ErrDecode, "no total"},
		"a version before the oldest": {delivery("order.placed", 0, `{}`), sinks.ClassInvalid, registry.ErrVersion, "begin with 1"},
		"a version of newer programs": {delivery("order.placed", 3, `{}`), sinks.ClassUnknown, registry.ErrNewerVersion, "deploy"},
		"a type of newer programs":    {delivery("order.lost", 1, `{}`), sinks.ClassUnknown, registry.ErrUnknownType, "order.lost"},
		"a type without a handler":    {delivery("order.shipped", 1, `{}`), sinks.ClassUnknown, function.ErrNoHandler, "the sink has handlers for order.created, order.placed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sink.Deliver(t.Context(), c.d)
			require.Equal(t, c.class, sinktest.Class(err))
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestAMuxCallsTheHandlerOfTheType(t *testing.T) {
	var calls []any
	sink := open(t, function.Mux(shop(t),
		function.On(func(_ context.Context, p placed) error {
			calls = append(calls, p)
			return nil
		}),
		function.OnDelivery(func(_ context.Context, d *notification.Delivery, s *shipped) error {
			calls = append(calls, *s, d.ID, d.Attempt)
			return nil
		})))
	second := delivery("order.shipped", 1, `{"order":"o-1"}`)
	for _, d := range []*notification.Delivery{delivery("order.placed", 2, `{"cents":5}`), second} {
		_, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
	}
	require.Equal(t, []any{placed{5}, shipped{"o-1"}, second.ID, 3}, calls)
}

func TestSeveralHandlersOfATypeRunInOrderUntilOneFails(t *testing.T) {
	var calls []string
	var fails error
	record := func(name string, err *error) func(context.Context, placed) error {
		return func(context.Context, placed) error {
			calls = append(calls, name)
			return *err
		}
	}
	var none error
	for name, sink := range map[string]sinks.Sink{
		"Handle": function.Handle(shop(t), record("first", &none), record("second", &fails), record("third", &none)),
		"Mux":    function.Mux(shop(t), function.On(record("first", &none)), function.On(record("second", &fails), record("third", &none))),
	} {
		t.Run(name, func(t *testing.T) {
			open(t, sink)
			calls, fails = nil, sinks.Permanent(errors.New("no such order"))
			_, err := sink.Deliver(t.Context(), delivery("order.placed", 2, `{}`))
			require.ErrorIs(t, err, fails)
			require.Equal(t, []string{"first", "second"}, calls, "the handlers after the failed one are not called")

			calls, fails = nil, nil
			_, err = sink.Deliver(t.Context(), delivery("order.placed", 2, `{}`))
			require.NoError(t, err)
			require.Equal(t, []string{"first", "second", "third"}, calls, "the next attempt calls all handlers")
		})
	}
}

func TestEachHandlerOfATypeGetsItsOwnValue(t *testing.T) {
	var second *shipped
	sink := open(t, function.Handle(shop(t),
		func(_ context.Context, s *shipped) error { s.Order = "changed"; return nil },
		func(_ context.Context, s *shipped) error { second = s; return nil }))
	_, err := sink.Deliver(t.Context(), delivery("order.shipped", 1, `{"order":"o-1"}`))
	require.NoError(t, err)
	require.Equal(t, &shipped{"o-1"}, second)
}

func TestTheTypesOfASinkAreListed(t *testing.T) {
	sink := function.Mux(shop(t),
		function.On(func(context.Context, *shipped) error { return nil }),
		function.On(func(context.Context, placed) error { return nil }),
		function.On(func(context.Context, *placed) error { return nil }))
	handled, err := sink.(sinks.Typed).HandledTypes()
	require.NoError(t, err)
	require.Equal(t, []sinks.HandledType{{Name: "order.placed", Aliases: []string{"order.created"}}, {Name: "order.shipped"}}, handled)
}

func TestMistakesAreReportedTogetherWhenTheSinkIsOpened(t *testing.T) {
	sink := function.Mux(shop(t),
		function.On[placed](nil),
		function.On(func(context.Context, placed) error { return nil }),
		function.On[*placed](),
		function.On(func(context.Context, unknown) error { return nil }))
	err := sink.(sinks.Opener).Open(t.Context())
	require.ErrorIs(t, err, function.ErrNoHandlers)
	require.ErrorContains(t, err, "function_test.placed")
	require.ErrorIs(t, err, registry.ErrUnregistered)
	_, listed := sink.(sinks.Typed).HandledTypes()
	require.Equal(t, err, listed)

	_, err = sink.Deliver(t.Context(), delivery("order.placed", 2, `{}`))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "no delivery becomes dead because of it")

	require.ErrorIs(t, function.Mux(shop(t)).(sinks.Opener).Open(t.Context()), function.ErrNoHandlers)
}

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	sinktest.RunKind(t, function.Kind(nil), struct{}{})
}

func TestAnInvalidHandlerIsAnError(t *testing.T) {
	for want, sink := range map[string]sinks.Sink{
		"the registry of types is nil": function.Handle(nil, func(context.Context, struct{}) error { return nil }),
		"make one with function.On":    function.Mux(registry.New(), function.Handler{}),
	} {
		_, err := sink.(sinks.Typed).HandledTypes()
		require.ErrorIs(t, err, function.ErrNoHandlers)
		require.ErrorContains(t, err, want)
	}
}
