package registry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

type namedPointer *orderPlaced

// orderShippedV1 and V2 are older versions of orderShipped.
type (
	orderShippedV1 struct{ ID int }
	orderShippedV2 struct{ ID string }
)

// as registers a type.
func as[T any](name string, options ...registry.TypeOption) func(*registry.Registry) error {
	return func(r *registry.Registry) error { return registry.Register[T](r, name, options...) }
}

func TestAFailedRegisterChangesNothing(t *testing.T) {
	t.Parallel()
	noSteps := func(v orderShippedV1) (orderShipped, error) { return orderShipped{}, nil }
	for name, tc := range map[string]struct {
		register func(*registry.Registry) error
		is       error
		wants    string
	}{
		"a name in use": {
			as[orderShipped]("order.placed"),
			registry.ErrDuplicateName, `register registry_test.orderShipped as "order.placed": name is registered twice: "order.placed" is already the name of registry_test.orderPlaced ("order.placed")`,
		},
		"a name that is an alias": {
			as[orderShipped]("order.new"),
			registry.ErrDuplicateName, `"order.new" is already the name of registry_test.orderPlaced ("order.placed")`,
		},
		"an alias that is a name": {
			as[orderShipped]("order.shipped", registry.Aliases("sent", "order.placed")),
			registry.ErrDuplicateName, `"order.placed" is already the name of registry_test.orderPlaced`,
		},
		"an alias that is an alias": {
			as[orderShipped]("order.shipped", registry.Aliases("sent", "order.new")),
			registry.ErrDuplicateName, `"order.new" is already the name of registry_test.orderPlaced`,
		},
		"an alias that is the name itself": {
			as[orderShipped]("order.shipped", registry.Aliases("order.shipped")),
			registry.ErrDuplicateName, `"order.shipped" is also among the aliases`,
		},
		"a Go type in use": {
			as[orderPlaced]("order.shipped"),
			registry.ErrDuplicateType, `it is already "order.placed", which registry_test.orderPlaced and *registry_test.orderPlaced share; add older names with registry.Aliases`,
		},
		"a pointer to a Go type in use": {
			as[*orderPlaced]("order.shipped"),
			registry.ErrDuplicateType, `it is already "order.placed"`,
		},
		"an invalid name": {
			as[orderShipped]("order shipped"),
			notification.ErrInvalid, `type name "order shipped" contains ' '`,
		},
		"an invalid alias": {
			as[orderShipped]("order.shipped", registry.Aliases("order.*")),
			notification.ErrInvalid, `type name "order.*" contains '*'`,
		},
		"a reserved name": {
			as[orderShipped]("_order.shipped"),
			registry.ErrReservedName, `"_order.shipped" begins with "_", as only Waybill's own types do: choose another name`,
		},
		"a reserved alias": {
			as[orderShipped]("order.shipped", registry.Aliases("_shipped")),
			registry.ErrReservedName, `add a route of that name`,
		},
		"version 0": {
			as[orderShipped]("order.shipped", registry.Version(0)),
			notification.ErrInvalid, "version 0 is outside 1..32767",
		},
		"a version beyond the column": {
			as[orderShipped]("order.shipped", registry.Version(notification.MaxVersion+1), registry.Oldest(notification.MaxVersion+1)),
			notification.ErrInvalid, "version 32768 is outside 1..32767",
		},
		"an oldest version beyond the newest": {
			as[orderShipped]("order.shipped", registry.Version(2), registry.Oldest(3)),
			notification.ErrInvalid, "oldest version 3 is outside 1..2",
		},
		"oldest version 0": {
			as[orderShipped]("order.shipped", registry.Oldest(0)),
			notification.ErrInvalid, "oldest version 0 is outside 1..1",
		},
		"a key function for another type": {
			as[orderShipped]("order.shipped", registry.Key(orderPlaced.customer)),
			registry.ErrOption, "registry.Key takes registry_test.orderPlaced; it must take registry_test.orderShipped",
		},
		"a key function for a pointer to the pointer": {
			as[*orderShipped]("order.shipped", registry.Key(func(**orderShipped) string { return "" })),
			registry.ErrOption, "registry.Key takes **registry_test.orderShipped",
		},
		"no key function": {
			as[orderShipped]("order.shipped", registry.Key[orderShipped](nil)),
			registry.ErrOption, "registry.Key is nil",
		},
		"no serializer": {
			as[orderShipped]("order.shipped", registry.Serializer(nil)),
			registry.ErrOption, "registry.Serializer is nil",
		},
		"a type that its serializer refuses": {
			as[orderShipped]("order.shipped", registry.Serializer(protobuf.JSON{})),
			protobuf.ErrNoMessage, "registry_test.orderShipped; use a type that protoc generated",
		},
		"a protobuf message by value": {
			as[wrapperspb.StringValue]("order.shipped", registry.Serializer(protobuf.JSON{})),
			registry.ErrOption, "use its pointer type *wrapperspb.StringValue",
		},
		"an old version that its serializer refuses": {
			func(r *registry.Registry) error {
				return registry.Register[*wrapperspb.StringValue](r, "order.shipped", registry.Serializer(protobuf.JSON{}), registry.Version(2),
					registry.Upcast(1, func(orderShippedV1) (*wrapperspb.StringValue, error) { return nil, nil }))
			},
			protobuf.ErrNoMessage, "the one from 1: not a proto.Message: registry_test.orderShippedV1",
		},
		"no upcasters": {
			as[orderShipped]("order.shipped", registry.Version(3)),
			registry.ErrUpcaster, "version 3 needs an upcaster from each version since 1; missing [1 2]: add registry.Upcast(1, …), or registry.Oldest(3)",
		},
		"a gap among the upcasters": {
			as[orderShipped]("order.shipped", registry.Version(3), registry.Upcast(1, noSteps)),
			registry.ErrUpcaster, "version 3 needs an upcaster from each version since 1; missing [2]",
		},
		"many gaps": {
			as[orderShipped]("order.shipped", registry.Version(9), registry.Upcast(2, noSteps), registry.Upcast(7, noSteps)),
			registry.ErrUpcaster, "version 9 needs an upcaster from each version since 1; missing [1 3 4 5 6 8]",
		},
		"two upcasters from one version": {
			as[orderShipped]("order.shipped", registry.Version(2), registry.Upcast(1, noSteps), registry.Upcast(1, noSteps)),
			registry.ErrUpcaster, "two from version 1",
		},
		"an upcaster from the newest version": {
			as[orderShipped]("order.shipped", registry.Upcast(1, noSteps)),
			registry.ErrUpcaster, "there is one from version 1, but the oldest version is 1 and the newest 1",
		},
		"an upcaster from before the oldest version": {
			as[orderShipped]("order.shipped", registry.Version(3), registry.Oldest(2), registry.Upcast(1, noSteps), registry.Upcast(2, noSteps)),
			registry.ErrUpcaster, "there is one from version 1, but the oldest version is 2 and the newest 3",
		},
		"a step that does not fit the next": {
			func(r *registry.Registry) error {
				return registry.Register[orderShipped](r, "order.shipped", registry.Version(3), registry.Upcast(1, noSteps),
					registry.Upcast(2, func(orderShippedV2) (orderShipped, error) { return orderShipped{}, nil }))
			},
			registry.ErrUpcaster, "the one from 1 returns registry_test.orderShipped, but the one from 2 takes registry_test.orderShippedV2",
		},
		"a last step to another type": {
			func(r *registry.Registry) error {
				return registry.Register[orderShipped](r, "order.shipped", registry.Version(2),
					registry.Upcast(1, func(orderShippedV1) (orderShippedV2, error) { return orderShippedV2{}, nil }))
			},
			registry.ErrUpcaster, "the one from 1 returns registry_test.orderShippedV2, but the registered type is registry_test.orderShipped",
		},
		"an upcaster from an interface": {
			func(r *registry.Registry) error {
				return registry.Register[orderShipped](r, "order.shipped", registry.Version(2),
					registry.Upcast(1, func(any) (orderShipped, error) { return orderShipped{}, nil }))
			},
			registry.ErrGoType, "the one from 1: go type cannot be a notification: interface {}",
		},
		"no conversion": {
			as[orderShipped]("order.shipped", registry.Version(2), registry.Upcast[orderShippedV1, orderShipped](1, nil)),
			registry.ErrUpcaster, "the one from 1 is nil",
		},
		"an interface":              {as[error]("order.shipped"), registry.ErrGoType, "error is an interface"},
		"a pointer to an interface": {as[*error]("order.shipped"), registry.ErrGoType, "*error is an interface"},
		"a function type":           {as[func()]("order.shipped"), registry.ErrGoType, "func() has no value to serialize"},
		"a channel":                 {as[chan orderShipped]("order.shipped"), registry.ErrGoType, "chan registry_test.orderShipped"},
		"a pointer to a pointer": {
			as[**orderShipped]("order.shipped"),
			registry.ErrGoType, "**registry_test.orderShipped is a pointer to a pointer; use *registry_test.orderShipped",
		},
		"a named pointer type": {
			as[namedPointer]("order.shipped"),
			registry.ErrGoType, "registry_test.namedPointer is a named pointer type; use registry_test.orderPlaced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := registry.New()
			require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Aliases("order.new")))
			before := types.Types()

			err := tc.register(types)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.wants)

			require.Equal(t, before, types.Types())
			for _, name := range []string{"order.shipped", "sent"} {
				_, known := types.Lookup(name)
				require.False(t, known, name)
			}
			require.NoError(t, registry.Register[orderShipped](types, "order.shipped", registry.Aliases("sent")), "a refused registration leaves its names free")
			got, err := registry.Decode[orderPlaced](types, placed(1, `{"order_id":"o-1"}`))
			require.NoError(t, err)
			require.Equal(t, "o-1", got.OrderID)
		})
	}
}

func TestRegisterReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	types := shop(t)
	err := registry.Register[*orderPlaced](types, "order placed",
		registry.Aliases("order.shipped"), registry.Serializer(nil), registry.Key(func(orderShipped) string { return "" }), registry.Version(2))
	for _, want := range []error{
		notification.ErrInvalid, registry.ErrDuplicateName, registry.ErrDuplicateType, registry.ErrOption, registry.ErrUpcaster,
	} {
		require.ErrorIs(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 6)
}
