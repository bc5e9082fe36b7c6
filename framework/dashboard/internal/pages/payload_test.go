package pages

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
)

func TestAPayloadWithMasksThatIsNotJSONIsNotShown(t *testing.T) {
	t.Parallel()
	hidden := masks.Of(map[string][]string{"customer.*": {"email"}})
	for _, raw := range []string{"\x0a\x03a@b", "email=a@b", `{"email":"x"} {"email":"a@b"}`, `{"email":"a@b"`, `{"x":1} a@b`} {
		p := show(hidden, []string{"customer.moved"}, []byte(raw))
		require.NotEmpty(t, p.Problem, raw)
		require.Empty(t, p.Text, raw)
	}
	require.Contains(t, show(hidden, []string{"order.placed"}, []byte("email=a@b")).Text, "a@b")
}

func TestLongPayloadsAreCut(t *testing.T) {
	t.Parallel()
	var none masks.Masks
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
		p := show(none, []string{"x"}, []byte(c.raw))
		require.Equal(t, c.form, p.Form, name)
		require.Equal(t, c.cut, p.Cut, name)
		require.LessOrEqual(t, len(p.Text), payloadText, name)
		require.True(t, utf8.ValidString(p.Text), name)
		require.EqualValues(t, len(c.raw), p.Bytes, name)
	}
	require.Equal(t, "{\n  \"b\": 1,\n  \"a\": 2\n}", show(none, []string{"x"}, []byte(`{"b":1,"a":2}`)).Text, "the order of the keys stays")
}
