package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestMetadataOfOtherProducersIsKept(t *testing.T) {
	t.Parallel()
	m, err := store.DecodeMetadata([]byte(`{"tenant":"a\"b","retries":3,"flags":{"x":[1]},"nothing":null,"ok":true}`))
	require.NoError(t, err)
	require.Equal(t, notification.Metadata{"tenant": `a"b`, "retries": "3", "flags": `{"x":[1]}`, "nothing": "", "ok": "true"}, m)
}

func TestNoMetadataIsAnEmptyObject(t *testing.T) {
	t.Parallel()
	text, err := store.EncodeMetadata(nil)
	require.NoError(t, err)
	require.Equal(t, "{}", text)
	m, err := store.DecodeMetadata([]byte(text))
	require.NoError(t, err)
	require.NotNil(t, m)
	require.Empty(t, m)
}

func FuzzMetadata(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":"b"}`, `{"a":1,"a":null}`, `[]`, `null`, `"x"`, `{"a":"\ud800"}`, `{"b":"","a":"<&>\\\u0000\u2028\u007fé","\"":"x"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := store.DecodeMetadata([]byte(text))
		if err != nil {
			return
		}
		again, err := store.EncodeMetadata(m)
		require.NoError(t, err)
		marshaled, err := json.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, string(marshaled), again)
		decoded, err := store.DecodeMetadata([]byte(again))
		require.NoError(t, err)
		require.Equal(t, m, decoded)
	})
}
