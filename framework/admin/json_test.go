package admin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

func TestDeepJSONIsNotMultipliedByIndentation(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999),
		strings.Repeat(`{"a":`, 9_990) + "[" + strings.Repeat("1,", 80_000) + "1]" + strings.Repeat("}", 9_990),
	} {
		whole := admin.WholeOf(&store.ParkedDelivery{Parked: store.Parked{Envelope: notification.Envelope{Payload: []byte(payload)}}})
		text, err := admin.JSON([]admin.WholeView{whole})
		require.NoError(t, err)
		require.Less(t, len(text), 20*len(payload))
		require.Contains(t, string(text), payload)
	}
}

func TestOrdinaryJSONIsIndented(t *testing.T) {
	t.Parallel()
	view := map[string]any{"a": []any{1, map[string]any{}, []any{}, "]{\"\\"}, "b": map[string]any{"c": []int{1, 2}}}
	want, err := json.MarshalIndent(view, "", "  ")
	require.NoError(t, err)
	text, err := admin.JSON(view)
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", string(text))
	require.Equal(t, "no JSON", string(admin.LayOut([]byte("no JSON"))))
}

func TestLaidOutJSONIsNeverManyTimesLarger(t *testing.T) {
	t.Parallel()
	words := []string{"[", "]", "{", "}", ",", "1", `"a"`, `"a":`, `"[\\\""`, strings.Repeat("[", 500), strings.Repeat("]", 500), strings.Repeat("1,", 500)}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 20).Draw(t, "words"), "")
		if out := admin.LayOut([]byte(text)); len(out) > 18*len(text) {
			t.Fatalf("%d bytes of %d", len(out), len(text))
		}
	})
}

func TestAPayloadThatIsNotTextIsNotJSON(t *testing.T) {
	t.Parallel()
	require.Equal(t, json.RawMessage(`"é"`), admin.PayloadView([]byte(`"é"`)))
	require.Equal(t, []byte("\"\xff\""), admin.PayloadView([]byte("\"\xff\"")), "it is written as base64")
}
