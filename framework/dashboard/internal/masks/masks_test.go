package masks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
)

func TestMasksHideWhatTheyName(t *testing.T) {
	t.Parallel()
	hidden, err := masks.Parse(map[string][]string{"customer.*": {"$.email", "$.card.number"}, "customer.moved": {"$.items[*].sku"}, "*": {"$..token"}})
	require.NoError(t, err)
	const raw = `{"email":"a@b","card":{"number":"4111","brand":"<visa>"},"items":[{"sku":1},{"sku":2}],"n":12345678901234567890,"deep":{"token":"t"}}`
	for typ, c := range map[string]struct{ want, gone []string }{
		"customer.moved": {[]string{`"brand":"<visa>"`, "12345678901234567890"}, []string{"a@b", "4111", `"sku":1`, `"t"`}},
		"customer.left":  {[]string{`"sku":1`}, []string{"a@b", "4111", `"t"`}},
		"customers":      {[]string{"a@b", "4111"}, []string{`"t"`}},
	} {
		shown, some, err := hidden.Hide([]string{typ}, []byte(raw))
		require.NoError(t, err)
		require.True(t, some, typ)
		for _, text := range c.want {
			require.Contains(t, string(shown), text, typ)
		}
		for _, text := range c.gone {
			require.NotContains(t, string(shown), text, typ)
		}
	}
	// Duplicate and escaped names do not evade a mask.
	shown, _, err := hidden.Hide([]string{"customer.left"}, []byte(`{"email":"first@b","email":"second@b","card":{"number":"1"},"card":{"n\u0075mber":"2"}}`))
	require.NoError(t, err)
	require.NotContains(t, string(shown), "@b")
	require.NotContains(t, string(shown), `"1"`)
	require.NotContains(t, string(shown), `"2"`)
}

func TestWrongMasksAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := masks.Parse(map[string][]string{"a b": {"$.x"}, "a": {"$.[", "x"}})
	require.ErrorContains(t, err, `masks.a b:`)
	require.ErrorContains(t, err, `"$.["`)
	require.ErrorContains(t, err, `"x" is not a JSON path`)
}
