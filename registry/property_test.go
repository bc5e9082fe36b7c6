package registry_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer/protobuf"
)

// everything has a field of each kind that JSON preserves.
type everything struct {
	Text    string
	Number  int64
	Size    uint32
	Ratio   float64
	Yes     bool
	Bytes   []byte
	At      time.Time
	Part    *everything `json:",omitempty"`
	Lines   []line
	Amounts map[string]int32
}

type line struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity,omitempty"`
}

var genEverything = rapid.Custom(func(t *rapid.T) everything {
	v := drawFlat(t)
	if rapid.Bool().Draw(t, "has part") {
		part := drawFlat(t)
		v.Part = &part
	}
	return v
})

func drawFlat(t *rapid.T) everything {
	return everything{
		Text:   rapid.String().Draw(t, "text"),
		Number: rapid.Int64().Draw(t, "number"),
		Size:   rapid.Uint32().Draw(t, "size"),
		Ratio:  rapid.Float64().Filter(func(f float64) bool { return f-f == 0 }).Draw(t, "ratio"),
		Yes:    rapid.Bool().Draw(t, "yes"),
		Bytes:  rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"),
		At:     time.UnixMicro(rapid.Int64Range(0, 4102444800_000000).Draw(t, "at")).UTC(),
		Lines: rapid.SliceOf(rapid.Custom(func(t *rapid.T) line {
			return line{SKU: rapid.String().Draw(t, "sku"), Quantity: rapid.Int().Draw(t, "quantity")}
		})).Draw(t, "lines"),
		Amounts: rapid.MapOf(rapid.String(), rapid.Int32()).Draw(t, "amounts"),
	}
}

func TestAnEncodedValueIsDecodedUnchanged(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[everything](types, "everything", registry.Key(func(v everything) string { return v.Text })))

	rapid.Check(t, func(t *rapid.T) {
		want := genEverything.Draw(t, "value")
		e, err := types.Encode(want)
		require.NoError(t, err)
		require.Equal(t, want.Text, e.Key)
		got, err := types.Decode(e)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func FuzzDecode(f *testing.F) {
	types := registry.New()
	require.NoError(f, registry.Register[everything](types, "everything", registry.Version(2), registry.Aliases("alias"),
		registry.Upcast(1, func(old line) (*everything, error) {
			if old.SKU == "" {
				return nil, nil
			}
			return &everything{Text: old.SKU}, nil
		})))
	require.NoError(f, registry.Register[*wrapperspb.BytesValue](types, "binary", registry.Serializer(protobuf.Serializer{})))
	require.NoError(f, registry.Register[*wrapperspb.StringValue](types, "protojson", registry.Serializer(protobuf.JSON{})))

	f.Add("everything", 2, "application/json", []byte(`{"Text":"a","Lines":[{"sku":"b"}],"Part":{"Ratio":1e9}}`))
	f.Add("alias", 1, "", []byte(`{"sku":"a"}`))
	f.Add("alias", 1, "", []byte(`{}`))
	f.Add("everything", -1, "application/json", []byte(`null`))
	f.Add("everything", 3, "text/plain", []byte{})
	f.Add("binary", 1, "application/x-protobuf", []byte("\x0a\x03o-1"))
	f.Add("protojson", 1, "application/json;", []byte(`"a"`))
	f.Add("unknown", 1, "", []byte{0xff})

	f.Fuzz(func(t *testing.T, name string, version int, contentType string, payload []byte) {
		v, err := types.Decode(&notification.Envelope{
			Type: name, Version: version, Payload: payload,
			Metadata: notification.Metadata{notification.MetadataContentType: contentType},
		})
		if err != nil {
			require.Nil(t, v)
			return
		}
		info, known := types.Lookup(name)
		require.True(t, known)
		require.Equal(t, info.GoType, reflect.TypeOf(v).String())

		// A decoded value can be encoded, and is then decoded unchanged.
		e, err := types.Encode(v)
		require.NoError(t, err)
		again, err := types.Decode(e)
		require.NoError(t, err)
		if info.Name == "everything" {
			require.Equal(t, v, again)
		}
	})
}
