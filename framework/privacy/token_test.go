package privacy

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

var fixedKey = &known{id: "abcdefghijklmnop", aead: newAEAD(bytes.Repeat([]byte{7}, keyLength))}

func sealedWith(t testing.TB, key *known, payload string, at ...string) *notification.Envelope {
	e := &notification.Envelope{Type: "t", Version: 2, ID: "id-1", Payload: []byte(payload), Metadata: notification.Metadata{"a": "b"}}
	require.NoError(t, seal(Sealing{e, []registry.PrivateValues{{Subject: "p", At: pointers(t, at...)}}}, map[string]*known{"p": key}))
	return e
}

func TestAPayloadIsTheSameAfterEncryption(t *testing.T) {
	t.Parallel()
	const payload = `{"email":"ada@example.com","n":[{"age":36},{"age":null}], "a":{"street":"x"} }`
	e := sealedWith(t, fixedKey, payload, "/email", "/n/*/age", "/a")
	require.True(t, json.Valid(e.Payload))
	require.NotContains(t, string(e.Payload), "ada")
	require.NotContains(t, string(e.Payload), "36")
	require.Equal(t, fixedKey.id, e.Metadata[notification.MetadataPrivateKeys])

	before := bytes.Clone(e.Payload)
	v := view(e, sinks.PrivateReveal, false, map[string]*known{fixedKey.id: fixedKey})
	require.NoError(t, v.Err)
	require.Equal(t, payload, string(v.Envelope.Payload))
	require.Equal(t, notification.Metadata{"a": "b"}, v.Envelope.Metadata)
	require.Equal(t, []string{"ada@example.com", "36", "street", "x"}, v.Revealed)
	require.Equal(t, before, e.Payload, "what is stored does not change")
}

func TestAValueWithoutATextIsDecryptedToo(t *testing.T) {
	t.Parallel()
	keys := map[string]*known{fixedKey.id: fixedKey}
	v := view(sealedWith(t, fixedKey, `{"pregnant":true}`, "/pregnant"), sinks.PrivateReveal, false, keys)
	require.True(t, v.Decrypted)
	require.Empty(t, v.Revealed)
	require.False(t, view(sealedWith(t, fixedKey, `{"pregnant":true}`, "/pregnant"), sinks.PrivateMask, false, keys).Decrypted)
}

func TestValuesBelongToTheirNotification(t *testing.T) {
	t.Parallel()
	keys := map[string]*known{fixedKey.id: fixedKey}
	for name, change := range map[string]func(e *notification.Envelope){
		"type":    func(e *notification.Envelope) { e.Type = "other" },
		"version": func(e *notification.Envelope) { e.Version = 1 },
		"id":      func(e *notification.Envelope) { e.ID = "id-2" },
		"a byte": func(e *notification.Envelope) {
			at := &e.Payload[len(e.Payload)-5]
			*at = map[bool]byte{true: 'B', false: 'A'}[*at == 'A'] // still base64
		},
		"no bytes": func(e *notification.Envelope) { e.Payload = append(e.Payload[:len(e.Payload)-8], `"}`...) },
	} {
		e := sealedWith(t, fixedKey, `{"a":"secret"}`, "/a")
		change(e)
		require.ErrorIs(t, view(e, sinks.PrivateReveal, false, keys).Err, ErrUnreadable, name)
	}
	require.ErrorIs(t, view(sealedWith(t, fixedKey, `{"a":1}`, "/a"), sinks.PrivateReveal, false, nil).Err, ErrMissing)
}

func TestATextLikeATokenIsNoPrivateValue(t *testing.T) {
	t.Parallel()
	const typed = `"waybill:1:bbbbbbbbbbbbbbbb:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"`
	_, found := nextToken([]byte(typed), 0)
	require.True(t, found)
	for show, want := range map[sinks.Private]string{
		sinks.PrivateReveal: `{"name":` + typed + `,"a":1}`, sinks.PrivateDrop: `{"name":` + typed + `}`, sinks.PrivateMask: `{"name":` + typed + `,"a":"***"}`,
	} {
		v := view(sealedWith(t, fixedKey, `{"name":`+typed+`,"a":1}`, "/a"), show, false, map[string]*known{fixedKey.id: fixedKey})
		require.NoError(t, v.Err, show)
		require.Equal(t, want, string(v.Envelope.Payload), show)
	}
}

func TestWhatASinkGetsOfPrivateValues(t *testing.T) {
	t.Parallel()
	alive := map[string]*known{fixedKey.id: fixedKey}
	erased := map[string]*known{fixedKey.id: {id: fixedKey.id}}
	for name, c := range map[string]struct {
		payload string
		at      []string
		show    sinks.Private
		keys    map[string]*known
		want    string
	}{
		"dropped":               {`{"a":"x","b":1}`, []string{"/a"}, sinks.PrivateDrop, alive, `{"b":1}`},
		"dropped last":          {`{"b":1, "a":"x"}`, []string{"/a"}, sinks.PrivateDrop, alive, `{"b":1}`},
		"dropped all":           {`{"a":"x","b":1,"c":2}`, []string{"/a", "/b", "/c"}, sinks.PrivateDrop, nil, `{}`},
		"dropped in the middle": {`{"a":1, "b\"" : "x" , "c":2}`, []string{"/b\""}, sinks.PrivateDrop, alive, `{"a":1,  "c":2}`},
		"dropped of a list":     {`["x",1]`, []string{"/0"}, sinks.PrivateDrop, alive, `[null,1]`},
		"dropped of an escape":  {`{"\\":"x"}`, []string{`/\`}, sinks.PrivateDrop, alive, `{}`},
		"masked":                {`{"a":"x","b":1}`, []string{"/a", "/b"}, sinks.PrivateMask, alive, `{"a":"***","b":"***"}`},
		"erased":                {`{"a":"x","b":1}`, []string{"/a"}, sinks.PrivateReveal, erased, `{"b":1}`},
		"whole":                 {`{"a":"x"}`, []string{""}, sinks.PrivateReveal, alive, `{"a":"x"}`},
		"whole, erased":         {`{"a":"x"}`, []string{""}, sinks.PrivateReveal, erased, `null`},
		"whole, dropped":        {`{"a":"x"}`, []string{""}, sinks.PrivateDrop, alive, `null`},
		"whole, masked":         {`{"a":"x"}`, []string{""}, sinks.PrivateMask, alive, `"***"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := view(sealedWith(t, fixedKey, c.payload, c.at...), c.show, false, c.keys)
			require.NoError(t, v.Err)
			require.Equal(t, c.want, string(v.Envelope.Payload))
			require.NotContains(t, v.Envelope.Metadata, notification.MetadataPrivateKeys)
		})
	}
	require.ErrorIs(t, view(sealedWith(t, fixedKey, `{"a":1}`, "/a"), sinks.PrivateReveal, true, erased).Err, ErrErased)
}

func TestAWholePayloadOfAnyFormatHasItsContentTypeAgain(t *testing.T) {
	t.Parallel()
	e := &notification.Envelope{Type: "t", Version: 1, ID: "1", Payload: []byte{0xff, 0}, Metadata: notification.Metadata{notification.MetadataContentType: "application/x-protobuf"}}
	require.NoError(t, seal(Sealing{e, []registry.PrivateValues{{Subject: "p", At: []registry.Pointer{nil}}}}, map[string]*known{"p": fixedKey}))
	require.True(t, json.Valid(e.Payload))
	require.Equal(t, `application/vnd.waybill.private+json; of="application/x-protobuf"`, e.Metadata[notification.MetadataContentType])
	v := view(e, sinks.PrivateReveal, false, map[string]*known{fixedKey.id: fixedKey})
	require.NoError(t, v.Err)
	require.Equal(t, []byte{0xff, 0}, v.Envelope.Payload)
	require.Equal(t, "application/x-protobuf", v.Envelope.Metadata[notification.MetadataContentType])
	v = view(e, sinks.PrivateDrop, false, nil)
	require.Equal(t, "null", string(v.Envelope.Payload))
	require.Equal(t, "application/json", v.Envelope.Metadata[notification.MetadataContentType])
}

func TestTextsThatLookLikeTokensAreLeftAlone(t *testing.T) {
	t.Parallel()
	token := string(appendToken(nil, fixedKey.id, fixedKey.aead, []byte(`1`), nil))
	for _, payload := range []string{
		`{"a":"waybill:1:"}`, `{"a":"waybill:1:short:AAAA"}`, `{"a":"waybill:1:ABCDEFGHIJKLMNOP:AAAA"}`,
		`{"a":"say \"waybill:1:abcdefghijklmnop:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\""}`,
		`{` + token + ` : 1}`, `{"a":"waybill:1:abcdefghijklmnop:$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$$"}`, `"waybill:1:`,
	} {
		_, found := nextToken([]byte(payload), 0)
		require.False(t, found, payload)
	}
}

// FuzzView decodes anything as an envelope: it must neither panic nor make JSON invalid.
func FuzzView(f *testing.F) {
	f.Add([]byte(sealedWith(f, fixedKey, `{"a":"x","b":[1]}`, "/a", "/b").Payload), byte(0))
	f.Add([]byte(sealedWith(f, fixedKey, `[{"a":1}]`, "/0/a").Payload), byte(1))
	f.Add([]byte(`{"waybill:1:abcdefghijklmnop:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" :1}`), byte(2))
	shows := []sinks.Private{sinks.PrivateReveal, sinks.PrivateDrop, sinks.PrivateMask}
	f.Fuzz(func(t *testing.T, payload []byte, n byte) {
		e := &notification.Envelope{Type: "t", Version: 2, ID: "id-1", Payload: payload, Metadata: notification.Metadata{notification.MetadataPrivateKeys: fixedKey.id}}
		v := view(e, shows[int(n)%len(shows)], n%2 == 0, map[string]*known{fixedKey.id: fixedKey})
		if v.Err == nil && json.Valid(payload) {
			require.True(t, json.Valid(v.Envelope.Payload), "%s from %s", v.Envelope.Payload, payload)
		}
	})
}
