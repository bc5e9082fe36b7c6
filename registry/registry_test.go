package registry_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

type orderPlaced struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	Cents      int64  `json:"cents"`
}

func (o orderPlaced) customer() string { return o.CustomerID }

type orderShipped struct {
	OrderID string `json:"order_id"`
}

// shout has MarshalJSON on its pointer, which encoding/json skips for values.
type shout struct{ Word string }

func (s *shout) MarshalJSON() ([]byte, error) { return json.Marshal(s.Word + "!") }

// choosy refuses some payloads and some values.
type choosy struct{ Limit float64 }

func (c *choosy) UnmarshalJSON(data []byte) error { return errChoosy }

var errChoosy = errors.New("not good enough")

func TestEncodeSetsTypeVersionKeyAndPayload(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Key(orderPlaced.customer)))

	e, err := types.Encode(orderPlaced{OrderID: "o-1", CustomerID: "c-7", Cents: 995})
	require.NoError(t, err)
	require.Equal(t, &notification.Envelope{
		Type:     "order.placed",
		Version:  1,
		Key:      "c-7",
		Metadata: notification.Metadata{"content-type": "application/json"},
		Payload:  []byte(`{"order_id":"o-1","customer_id":"c-7","cents":995}`),
	}, e)
}

func TestEnvelopesDoNotShareMetadata(t *testing.T) {
	t.Parallel()
	types := shop(t)
	first, err := types.Encode(orderShipped{})
	require.NoError(t, err)
	require.Empty(t, first.Key, "there is no key function")
	first.Metadata["tenant"] = "acme"
	second, err := types.Encode(orderShipped{})
	require.NoError(t, err)
	require.Empty(t, second.Metadata.Get("tenant"))
}

func TestPointerAndValueAreTheSameType(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*registry.Registry) error{
		"registered as value":   as[orderPlaced]("order.placed", registry.Key(func(o *orderPlaced) string { return o.CustomerID })),
		"registered as pointer": as[*orderPlaced]("order.placed", registry.Key(orderPlaced.customer)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := registry.New()
			require.NoError(t, register(types))
			want := orderPlaced{OrderID: "o-1", CustomerID: "c-7", Cents: 995}

			byValue, err := types.Encode(want)
			require.NoError(t, err)
			byPointer, err := types.Encode(&want)
			require.NoError(t, err)
			require.Equal(t, byValue, byPointer)
			require.Equal(t, "c-7", byValue.Key)

			asValue, err := registry.Decode[orderPlaced](types, byValue)
			require.NoError(t, err)
			require.Equal(t, want, asValue)
			asPointer, err := registry.Decode[*orderPlaced](types, byValue)
			require.NoError(t, err)
			require.Equal(t, &want, asPointer)

			for _, v := range []any{want, &want, (*orderPlaced)(nil)} {
				typeName, err := types.Name(v)
				require.NoError(t, err)
				require.Equal(t, "order.placed", typeName)
			}
			for _, nameOf := range []func(*registry.Registry) (string, error){registry.NameOf[orderPlaced], registry.NameOf[*orderPlaced]} {
				typeName, err := nameOf(types)
				require.NoError(t, err)
				require.Equal(t, "order.placed", typeName)
			}
		})
	}
}

func TestMarshalMethodsOfThePointerAreUsedForValues(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[shout](types, "shout"))
	e, err := types.Encode(shout{Word: "hey"})
	require.NoError(t, err)
	require.Equal(t, `"hey!"`, string(e.Payload))
}

func TestTypesThatAreNotStructsCanBeRegistered(t *testing.T) {
	t.Parallel()
	type tags []string
	types := registry.New()
	require.NoError(t, registry.Register[tags](types, "tags.changed", registry.Key(func(v tags) string { return v[0] })))
	require.NoError(t, registry.Register[map[string]any](types, "anything"))

	e, err := types.Encode(tags{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, "a", e.Key)
	got, err := types.Decode(e)
	require.NoError(t, err)
	require.Equal(t, tags{"a", "b"}, got)

	e, err = types.Encode(map[string]any{"a": true})
	require.NoError(t, err)
	got, err = types.Decode(e)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": true}, got)
}

func TestProtobufMessagesAreRegisteredByTheirPointer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serializer  serializer.Serializer
		contentType string
		payload     string
	}{
		"binary":        {protobuf.Serializer{}, "application/protobuf", "\x0a\x03o-1"},
		"ProtoJSON":     {protobuf.JSON{}, "application/json", `"o-1"`},
		"encoding/json": {serializer.JSON{}, "application/json", `{"value":"o-1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := registry.New(registry.DefaultSerializer(tc.serializer))
			require.NoError(t, registry.Register[*wrapperspb.StringValue](types, "order.named",
				registry.Key((*wrapperspb.StringValue).GetValue)))

			e, err := types.Encode(wrapperspb.String("o-1"))
			require.NoError(t, err)
			require.Equal(t, tc.payload, string(e.Payload))
			require.Equal(t, "o-1", e.Key)
			require.Equal(t, tc.contentType, e.Metadata.Get("content-type"))

			got, err := types.Decode(e)
			require.NoError(t, err)
			require.True(t, proto.Equal(wrapperspb.String("o-1"), got.(*wrapperspb.StringValue)))
			typed, err := registry.Decode[*wrapperspb.StringValue](types, e)
			require.NoError(t, err)
			require.True(t, proto.Equal(wrapperspb.String("o-1"), typed))
			require.NotSame(t, got, typed, "each Decode returns a new message")
		})
	}
}

func TestATypeCanHaveItsOwnSerializer(t *testing.T) {
	t.Parallel()
	types := registry.New(registry.DefaultSerializer(protobuf.Serializer{}))
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Serializer(serializer.JSON{})))
	e, err := types.Encode(orderPlaced{})
	require.NoError(t, err)
	require.Equal(t, "application/json", e.Metadata.Get("content-type"))
}

func TestTheZeroRegistryIsEmptyAndReady(t *testing.T) {
	t.Parallel()
	var types registry.Registry
	require.Empty(t, types.Types())
	_, known := types.Lookup("order.placed")
	require.False(t, known)
	_, err := types.Encode(orderPlaced{})
	require.ErrorIs(t, err, registry.ErrUnregistered)
	_, err = registry.New().Encode([]orderPlaced{{}})
	require.EqualError(t, err, "go type is not registered: []registry_test.orderPlaced", "the error of a slice suggests no name")
	_, err = types.Decode(&notification.Envelope{Type: "order.placed", Version: 1})
	require.ErrorIs(t, err, registry.ErrUnknownType)
	require.NoError(t, registry.Register[orderPlaced](&types, "order.placed"))
	_, err = types.Encode(orderPlaced{})
	require.NoError(t, err)
}

func TestEncodeErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	type HTTPRequestSent struct{}
	types := shop(t)
	require.NoError(t, registry.Register[choosy](types, "choosy"))
	for name, tc := range map[string]struct {
		value any
		is    error
		wants string
	}{
		"nil":                      {nil, registry.ErrNil, "publish a value"},
		"a nil pointer":            {(*orderPlaced)(nil), registry.ErrNil, "it is a nil pointer of the type *registry_test.orderPlaced"},
		"an unregistered value":    {HTTPRequestSent{}, registry.ErrUnregistered, `registry.Register[registry_test.HTTPRequestSent](types, "http.request.sent")`},
		"an unregistered pointer":  {&HTTPRequestSent{}, registry.ErrUnregistered, `registry.Register[*registry_test.HTTPRequestSent](types, "http.request.sent")`},
		"an unregistered unnamed":  {struct{ A int }{}, registry.ErrUnregistered, `registry.Register[struct { A int }](types, "order.placed")`},
		"a pointer to a pointer":   {new(*orderPlaced), registry.ErrGoType, "**registry_test.orderPlaced is a pointer to a pointer; use *registry_test.orderPlaced"},
		"a function":               {func() {}, registry.ErrGoType, "func()"},
		"a value JSON cannot hold": {choosy{Limit: math.NaN()}, registry.ErrEncode, `"choosy": marshal registry_test.choosy as JSON: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := types.Encode(tc.value)
			require.Nil(t, e)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.wants)
		})
	}
	_, err := types.Encode(choosy{Limit: math.NaN()})
	var unsupported *json.UnsupportedValueError
	require.ErrorAs(t, err, &unsupported, "the serializer's error is wrapped")
	_, err = types.Name(nil)
	require.ErrorIs(t, err, registry.ErrNil)
	_, err = registry.NameOf[HTTPRequestSent](types)
	require.ErrorIs(t, err, registry.ErrUnregistered)
}

func TestAnAliasIsReadAsItsType(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed",
		registry.Aliases("orders.new"), registry.Aliases("OrderCreated")))

	for _, name := range []string{"order.placed", "orders.new", "OrderCreated"} {
		got, err := types.Decode(&notification.Envelope{Type: name, Version: 1, Payload: []byte(`{"order_id":"o-1"}`)})
		require.NoError(t, err)
		require.Equal(t, orderPlaced{OrderID: "o-1"}, got)
		info, known := types.Lookup(name)
		require.True(t, known)
		require.Equal(t, "order.placed", info.Name)
	}
	e, err := types.Encode(orderPlaced{})
	require.NoError(t, err)
	require.Equal(t, "order.placed", e.Type)
}

func TestTypesListsTheTypesByName(t *testing.T) {
	t.Parallel()
	types := shop(t)
	require.NoError(t, registry.Register[*wrapperspb.StringValue](types, "customer.renamed",
		registry.Serializer(protobuf.Serializer{}), registry.Version(4), registry.Oldest(4), registry.Aliases("z", "a")))

	want := []registry.Info{
		{
			Name: "customer.renamed", GoType: "*wrapperspb.StringValue", Version: 4, Oldest: 4,
			Aliases: []string{"a", "z"}, ContentType: "application/protobuf",
		},
		{Name: "order.placed", GoType: "registry_test.orderPlaced", Version: 1, Oldest: 1, ContentType: "application/json", HasKey: true},
		{Name: "order.shipped", GoType: "registry_test.orderShipped", Version: 1, Oldest: 1, ContentType: "application/json"},
	}
	require.Equal(t, want, types.Types())

	types.Types()[0].Aliases[0] = "changed"
	require.Equal(t, want, types.Types(), "the list belongs to the caller")
}

// shop returns a registry with two types.
func shop(tb testing.TB) *registry.Registry {
	tb.Helper()
	types := registry.New()
	require.NoError(tb, errors.Join(
		registry.Register[orderPlaced](types, "order.placed", registry.Key(orderPlaced.customer)),
		registry.Register[orderShipped](types, "order.shipped"),
	))
	return types
}

// placed returns a stored "order.placed".
func placed(version int, payload string) *notification.Envelope {
	return &notification.Envelope{Type: "order.placed", Version: version, Payload: []byte(payload)}
}
