package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

func TestDecodeReturnsTheRegisteredType(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "by.value"))
	require.NoError(t, registry.Register[*orderShipped](types, "by.pointer"))

	got, err := types.Decode(&notification.Envelope{Type: "by.value", Version: 1, Payload: []byte(`{"order_id":"o-1"}`)})
	require.NoError(t, err)
	require.Equal(t, orderPlaced{OrderID: "o-1"}, got)
	got, err = types.Decode(&notification.Envelope{Type: "by.pointer", Version: 1, Payload: []byte(`{"order_id":"o-1"}`)})
	require.NoError(t, err)
	require.Equal(t, &orderShipped{OrderID: "o-1"}, got)
	got, err = types.Decode(&notification.Envelope{Type: "by.pointer", Version: 1, Payload: []byte(`null`)})
	require.NoError(t, err)
	require.Equal(t, &orderShipped{}, got, "never a nil pointer")
}

func TestDecodeErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	types := shop(t)
	require.NoError(t, registry.Register[choosy](types, "choosy"))
	for name, tc := range map[string]struct {
		envelope *notification.Envelope
		is       error
		wants    string
	}{
		"no envelope":     {nil, registry.ErrNil, "the envelope to decode is nil"},
		"an unknown name": {&notification.Envelope{Type: "order.paid", Version: 1}, registry.ErrUnknownType, `registry.Aliases("order.paid")`},
		"version 0":       {placed(0, `{}`), registry.ErrVersion, "versions begin with 1"},
		"a newer version": {placed(2, `{}`), registry.ErrNewerVersion, `decode "order.placed" version 2: newer version cannot be read: the newest registered is 1; deploy`},
		"a broken payload": {placed(1, `{"order_id":`), registry.ErrDecode,
			`decode "order.placed" version 1: payload does not decode: unmarshal JSON into registry_test.orderPlaced: at byte 12`},
		"a field of another type": {placed(1, `{"cents":"9.95"}`), registry.ErrDecode, "cents"},
		"the type's own refusal":  {&notification.Envelope{Type: "choosy", Version: 1, Payload: []byte("{}")}, errChoosy, "not good enough"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := types.Decode(tc.envelope)
			require.Nil(t, v)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.wants)
			typed, err := registry.Decode[orderPlaced](types, tc.envelope)
			require.Zero(t, typed)
			require.Error(t, err)
		})
	}
}

func TestDecodeChecksTheContentType(t *testing.T) {
	t.Parallel()
	types := shop(t)
	for contentType, readable := range map[string]bool{
		"":                                true, // an SQL producer that set none
		"application/json":                true,
		"Application/JSON; charset=utf-8": true,
		"application/protobuf":            false,
		"text/plain":                      false,
	} {
		e := placed(1, `{"order_id":"o-1"}`)
		e.Metadata = notification.Metadata{"content-type": contentType}
		_, err := types.Decode(e)
		if readable {
			require.NoError(t, err, "%q", contentType)
			continue
		}
		require.ErrorIs(t, err, registry.ErrContentType)
		require.ErrorContains(t, err, `"`+contentType+`", but the type is registered with "application/json"; set`)
	}
}

func TestTypedDecodeRefusesAnotherGoType(t *testing.T) {
	t.Parallel()
	types := shop(t)
	e := placed(1, `{}`)
	_, err := registry.Decode[orderShipped](types, e)
	require.ErrorContains(t, err, `"order.placed" is registry_test.orderPlaced, not registry_test.orderShipped`)
	for _, decode := range []func() error{
		func() error { _, err := registry.Decode[orderShipped](types, e); return err },
		func() error { _, err := registry.Decode[any](types, e); return err },
		func() error { _, err := registry.Decode[**orderPlaced](types, e); return err },
		func() error { _, err := registry.Decode[namedPointer](types, e); return err },
	} {
		require.ErrorIs(t, decode(), registry.ErrOtherType)
	}
}
