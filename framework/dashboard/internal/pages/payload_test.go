package pages

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestMasksHideWhatTheyName(t *testing.T) {
	t.Parallel()
	masks, err := ParseMasks(map[string][]string{"customer.*": {"$.email", "$.card.number"}, "customer.moved": {"$.items[*].sku"}, "*": {"$..token"}})
	require.NoError(t, err)
	const raw = `{"email":"a@b","card":{"number":"4111","brand":"<visa>"},"items":[{"sku":1},{"sku":2}],"n":12345678901234567890,"deep":{"token":"t"}}`
	for typ, c := range map[string]struct{ want, hidden []string }{
		"customer.moved": {[]string{`"brand": "<visa>"`, "12345678901234567890"}, []string{"a@b", "4111", `"sku": 1`, `"t"`}},
		"customer.left":  {[]string{`"sku": 1`}, []string{"a@b", "4111", `"t"`}},
		"customers":      {[]string{"a@b", "4111"}, []string{`"t"`}},
	} {
		p := masks.show([]string{typ}, []byte(raw))
		require.True(t, p.Masked, typ)
		for _, text := range c.want {
			require.Contains(t, p.Text, text, typ)
		}
		for _, text := range c.hidden {
			require.NotContains(t, p.Text, text, typ)
		}
	}
	// Names that stand twice, and other forms of the same name, hide nothing from a mask.
	p := masks.show([]string{"customer.left"}, []byte(`{"email":"first@b","email":"second@b","card":{"number":"1"},"card":{"n\u0075mber":"2"}}`))
	require.NotContains(t, p.Text, "@b")
	require.NotContains(t, p.Text, `"1"`)
	require.NotContains(t, p.Text, `"2"`)
}

func TestAPayloadWithMasksThatIsNotJSONIsNotShown(t *testing.T) {
	t.Parallel()
	masks, err := ParseMasks(map[string][]string{"customer.*": {"$.email"}})
	require.NoError(t, err)
	for _, raw := range []string{"\x0a\x03a@b", "email=a@b", `{"email":"x"} {"email":"a@b"}`, `{"email":"a@b"`, `{"x":1} a@b`} {
		p := masks.show([]string{"customer.moved"}, []byte(raw))
		require.NotEmpty(t, p.Problem, raw)
		require.Empty(t, p.Text, raw)
	}
	require.Contains(t, masks.show([]string{"order.placed"}, []byte("email=a@b")).Text, "a@b")
}

func TestWrongMasksAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := ParseMasks(map[string][]string{"a b": {"$.x"}, "a": {"$.[", "x"}})
	require.ErrorContains(t, err, `masks.a b:`)
	require.ErrorContains(t, err, `"$.["`)
	require.ErrorContains(t, err, `"x" is no JSON path`)
}

func TestPayloadsAreShownBounded(t *testing.T) {
	t.Parallel()
	var none Masks
	for name, c := range map[string]struct {
		raw, form string
		cut       bool
	}{
		"json":   {`{"a":[1,2]}`, "JSON", false},
		"text":   {"naïve\r\n\ttext", "text", false},
		"empty":  {"", "text", false},
		"bytes":  {"\x00\x01", "bytes in hexadecimal", false},
		"long":   {strings.Repeat("é", payloadText), "text", true},
		"blob":   {strings.Repeat("\xff", 1<<20), "bytes in hexadecimal", true},
		"deep":   {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "JSON", false},
		"large":  {`"` + strings.Repeat("x", 1<<20) + `"`, "JSON", true},
		"escape": {"\x1b[31mred", "bytes in hexadecimal", false},
	} {
		p := none.show([]string{"x"}, []byte(c.raw))
		require.Equal(t, c.form, p.Form, name)
		require.Equal(t, c.cut, p.Cut, name)
		require.LessOrEqual(t, len(p.Text), payloadText, name)
		require.True(t, utf8.ValidString(p.Text), name)
		require.EqualValues(t, len(c.raw), p.Bytes, name)
	}
	require.Equal(t, "{\n  \"b\": 1,\n  \"a\": 2\n}", none.show([]string{"x"}, []byte(`{"b":1,"a":2}`)).Text, "in its own order")
}
