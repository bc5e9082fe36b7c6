package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

// customerMoved has the address in one line in version 1, and in several fields from version 2 on.
// Version 3 adds a tag.
type (
	customerMovedV1 struct {
		Address string `json:"address"`
	}
	customerMovedV2 struct {
		Street string `json:"street"`
		City   string `json:"city"`
	}
	customerMoved struct {
		Street string `json:"street"`
		City   string `json:"city"`
		Tag    string `json:"tag"`
	}
)

var errNoComma = errors.New("address has no comma")

func splitAddress(old customerMovedV1) (customerMovedV2, error) {
	street, city, found := strings.Cut(old.Address, ", ")
	if !found {
		return customerMovedV2{}, errNoComma
	}
	return customerMovedV2{Street: street, City: city}, nil
}

func addTag(old customerMovedV2) (customerMoved, error) {
	return customerMoved{Street: old.Street, City: old.City, Tag: "from 2"}, nil
}

func TestAnOldPayloadIsConvertedStepByStep(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[customerMoved](types, "customer.moved", registry.Aliases("moved"),
		registry.Upcast(2, addTag), // the order of the options does not matter
		registry.Version(3),
		registry.Upcast(1, splitAddress),
	))
	for version, tc := range map[int]struct {
		payload string
		want    customerMoved
	}{
		1: {`{"address":"Main St 1, Graz"}`, customerMoved{"Main St 1", "Graz", "from 2"}},
		2: {`{"street":"Main St 1","city":"Graz"}`, customerMoved{"Main St 1", "Graz", "from 2"}},
		3: {`{"street":"Main St 1","city":"Graz","tag":"new"}`, customerMoved{"Main St 1", "Graz", "new"}},
	} {
		for _, name := range []string{"customer.moved", "moved"} {
			e := &notification.Envelope{Type: name, Version: version, Payload: []byte(tc.payload)}
			got, err := types.Decode(e)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			typed, err := registry.Decode[*customerMoved](types, e)
			require.NoError(t, err)
			require.Equal(t, &tc.want, typed)
		}
	}
	e, err := types.Encode(customerMoved{})
	require.NoError(t, err)
	require.Equal(t, 3, e.Version, "Encode writes the newest version")
}

func TestNewestConvertsThePayload(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[customerMoved](types, "customer.moved", registry.Aliases("moved"),
		registry.Version(3), registry.Upcast(1, splitAddress), registry.Upcast(2, addTag)))
	old := &notification.Envelope{ID: "1", Type: "moved", Version: 1, Key: "k", Metadata: notification.Metadata{"tenant": "acme"}, Payload: []byte(`{"address":"Main St 1, Graz"}`)}
	newest, err := types.Newest(old)
	require.NoError(t, err)
	require.Equal(t, &notification.Envelope{
		ID: "1", Type: "moved", Version: 3, Key: "k", Metadata: notification.Metadata{"tenant": "acme", "content-type": "application/json"},
		Payload: []byte(`{"street":"Main St 1","city":"Graz","tag":"from 2"}`),
	}, newest)
	require.Equal(t, 1, old.Version)
	require.Len(t, old.Metadata, 1)

	now := &notification.Envelope{Type: "customer.moved", Version: 3, Payload: []byte("any bytes")}
	same, err := types.Newest(now)
	require.NoError(t, err)
	require.Same(t, now, same, "what has the newest version is not decoded")

	for _, c := range []struct {
		e  *notification.Envelope
		is error
	}{
		{&notification.Envelope{Type: "moved", Version: 4}, registry.ErrNewerVersion},
		{&notification.Envelope{Type: "moved", Version: 0}, registry.ErrVersion},
		{&notification.Envelope{Type: "moved", Version: 1, Payload: []byte(`{}`)}, errNoComma},
		{&notification.Envelope{Type: "other", Version: 1}, registry.ErrUnknownType},
		{nil, registry.ErrNil},
	} {
		_, err := types.Newest(c.e)
		require.ErrorIs(t, err, c.is)
	}
}

func TestStepsMayMixPointersAndValues(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[*customerMoved](types, "customer.moved", registry.Version(3),
		registry.Upcast(1, func(old *customerMovedV1) (*customerMovedV2, error) {
			next, err := splitAddress(*old)
			return &next, err
		}),
		registry.Upcast(2, addTag),
	))
	got, err := types.Decode(&notification.Envelope{Type: "customer.moved", Version: 1, Payload: []byte(`{"address":"a, b"}`)})
	require.NoError(t, err)
	require.Equal(t, &customerMoved{"a", "b", "from 2"}, got)
}

func TestProtobufMessagesAreUpcastToo(t *testing.T) {
	t.Parallel()
	types := registry.New(registry.DefaultSerializer(protobuf.Serializer{}))
	require.NoError(t, registry.Register[*wrapperspb.StringValue](types, "order.named", registry.Version(2),
		registry.Upcast(1, func(old *wrapperspb.BytesValue) (*wrapperspb.StringValue, error) {
			return wrapperspb.String(string(old.GetValue())), nil
		}),
	))
	got, err := registry.Decode[*wrapperspb.StringValue](types, &notification.Envelope{Type: "order.named", Version: 1, Payload: []byte("\x0a\x03o-1")})
	require.NoError(t, err)
	require.Equal(t, "o-1", got.GetValue())
}

func TestAVersionBeforeTheOldestIsRefused(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[customerMoved](types, "customer.moved",
		registry.Version(3), registry.Oldest(2), registry.Upcast(2, addTag)))

	_, err := types.Decode(&notification.Envelope{Type: "customer.moved", Version: 1, Payload: []byte(`{"address":"a, b"}`)})
	require.ErrorIs(t, err, registry.ErrVersion)
	require.NotErrorIs(t, err, registry.ErrNewerVersion)
	require.ErrorContains(t, err, "the oldest registered is 2; lower registry.Oldest and add registry.Upcast(1, …)")
	got, err := types.Decode(&notification.Envelope{Type: "customer.moved", Version: 2, Payload: []byte(`{"street":"a"}`)})
	require.NoError(t, err)
	require.Equal(t, customerMoved{Street: "a", Tag: "from 2"}, got)
}

func TestAnErrorOfAnUpcasterIsAnErrorOfDecode(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[*customerMoved](types, "customer.moved", registry.Version(3),
		registry.Upcast(1, splitAddress),
		registry.Upcast(2, func(customerMovedV2) (*customerMoved, error) { return nil, nil }),
	))
	for name, tc := range map[string]struct {
		version int
		payload string
		is      error
		wants   string
	}{
		"its own error":        {1, `{"address":"nowhere"}`, errNoComma, `decode "customer.moved" version 1: payload does not decode: upcast from 1: address has no comma`},
		"a nil result":         {2, `{}`, registry.ErrNil, "upcast from 2: notification is nil: it is a nil pointer of the type *registry_test.customerMoved"},
		"a broken old payload": {1, `{"address":7}`, registry.ErrDecode, "registry_test.customerMovedV1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := types.Decode(&notification.Envelope{Type: "customer.moved", Version: tc.version, Payload: []byte(tc.payload)})
			require.Nil(t, v)
			require.ErrorIs(t, err, registry.ErrDecode)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.wants)
		})
	}
}
