package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestMetadataOfOtherProducersIsKept(t *testing.T) {
	t.Parallel()
	m := store.DecodeMetadata([]byte(`{"tenant":"a\"b","retries":3,"flags":{"x":[1]},"nothing":null,"ok":true}`))
	require.Equal(t, notification.Metadata{"tenant": `a"b`, "retries": "3", "flags": `{"x":[1]}`, "nothing": "", "ok": "true"}, m)
}

func TestNoMetadataIsAnEmptyObject(t *testing.T) {
	t.Parallel()
	text, err := store.EncodeMetadata(nil)
	require.NoError(t, err)
	require.Equal(t, "{}", text)
	m := store.DecodeMetadata([]byte(text))
	require.NotNil(t, m)
	require.Empty(t, m)
}

func TestMetadataThatGoCannotDecodeIsKeptAsText(t *testing.T) {
	t.Parallel()
	deep := `{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`
	for _, text := range []string{deep, "{}\x00", `{"a":`} {
		require.Equal(t, notification.Metadata{store.MetadataUnread: text}, store.DecodeMetadata([]byte(text)))
	}
}

func FuzzMetadata(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":"b"}`, `{"a":1,"a":null}`, `[]`, `null`, `"x"`, `{"a":"\ud800"}`, `{"b":"","a":"<&>\\\u0000\u2028\u007fé","\"":"x"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := store.DecodeMetadata([]byte(text))
		again, err := store.EncodeMetadata(m)
		require.NoError(t, err)
		marshaled, err := json.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, string(marshaled), again)
		if utf8.ValidString(text) { // otherwise the encoder replaces some of it
			require.Equal(t, m, store.DecodeMetadata([]byte(again)))
		}
	})
}
