package masks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
)

func TestMasksHideWhatTheyName(t *testing.T) {
	t.Parallel()
	hidden := masks.Of(map[string][]string{"customer.*": {"email", "card.number"}, "customer.moved": {"items.sku"}, "*": {"token"}})
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

func parsed(names ...string) masks.Masks {
	return masks.Of(map[string][]string{"customer.*": names})
}

const secret = "ada@example.org"

func TestAMaskHidesItsNameInAnyCaseAtAnyDepth(t *testing.T) {
	t.Parallel()
	hidden := parsed("email", "card.number", "items.sku", "born", "tax", "address", "tags")
	for _, payload := range []string{
		`{"Email":"ada@example.org"}`, `{"EMAIL":["ada@example.org"]}`, `{"a":[{"b":{"eMail":{"x":"ada@example.org"}}}]}`, `["x",{"email":"ada@example.org"}]`,
		`{"payments":[{"Card":[{"Number":"ada@example.org"}]}]}`, `{"order":{"Items":{"sku":"ada@example.org"}}}`, `{"x":{"Born":"ada@example.org"}}`, `{"TAX":"ada@example.org"}`,
		`{"Address":{"street":"ada@example.org"}}`, `{"tags":["ada@example.org"]}`,
		`{"raw":"{\"Email\":\"ada@example.org\"}"}`, `{"raw":" [\"{\\\"email\\\":\\\"ada@example.org\\\"}\"]"}`, `{"raw":"{\"em\\u0061il\":\"ada@example.org\"}"}`, `{"card":"{\"number\":\"ada@example.org\"}"}`,
		`{"raw":"error: {\"email\":\"ada@example.org\"}"}`, `{"raw":"name=x&email=ada@example.org&y=1"}`, `"{\"email\":\"ada@example.org\"}"`,
	} {
		shown, some, err := hidden.Hide([]string{"customer.moved"}, []byte(payload))
		require.NoError(t, err)
		require.True(t, some, payload)
		require.NotContains(t, string(shown), secret, payload)
		require.True(t, json.Valid(shown), "%s", shown)
	}
	const others = `{"emails":1,"number":"4111","card":{"brand":"visa"},"sku":2,"street":"x","tags":["a","b"],"raw":"{\"a\": 1.0}","at":"email"}`
	shown, _, err := parsed("email", "card.number", "items.sku", "address.street").Hide([]string{"customer.moved"}, []byte(others))
	require.NoError(t, err)
	require.JSONEq(t, others, string(shown))
}

func TestMasksHideInTexts(t *testing.T) {
	t.Parallel()
	hidden := parsed("email", "card.number")
	for _, text := range []string{
		`permanent: http://x/y: 422: {"received":{"email":"ada@example.org"}}`, `{"Email" : "ada@example.org"}`, `{\"email\":\"ada@example.org\"}`, `{\\\"email\\\":\\\"ada@example.org\\\"}`,
		`{"email":"ada@exam`, `email=ada@example.org`, `a=b&EMAIL=ada%40example.org&c=d`, `email: ada@example.org`, `'email' => 'ada@example.org'`, `{&quot;email&quot;:&quot;ada@example.org&quot;}`,
		`{&#34;email&#34;:&#34;ada@example.org&#34;}`, `%22email%22%3A%22ada@example.org%22`, `Key (email)=(ada@example.org) already exists`, `<email>ada@example.org</email>`, `<Email type="x">ada@example.org</Email>`,
		`&lt;email&gt;ada@example.org&lt;/email&gt;`, `\u0022email\u0022:\u0022ada@example.org\u0022`, `{"email":{"x":["ada@example.org"]}}`, `{"email":["ada@example.org"`, `{"card_number":"ada@example.org"}`, `a\nemail: ada@example.org`,
		`email: Ada <ada@example.org>`,
	} {
		shown := hidden.Text([]string{"customer.moved"}, text, nil)
		require.NotContains(t, strings.ReplaceAll(shown, "%40", "@"), "ada@exam", text)
		require.Contains(t, shown, "•••", text)
		require.Equal(t, shown, hidden.Text([]string{"customer.moved"}, shown, nil), "once is enough")
		require.Equal(t, text, hidden.Text([]string{"order.placed"}, text, nil), "another type")
		require.Equal(t, shown, hidden.Text(nil, text, nil), "any type")
	}
	for _, text := range []string{"", "the email is missing", "no such emails: 3", "timeout", `{"a":"b"}`, "gmail=x"} {
		require.Equal(t, text, hidden.Text(nil, text, nil))
	}
	require.Equal(t, `{"id":7,"email":"•••","then":1}`, hidden.Text(nil, `{"id":7,"email":"a\"b","then":1}`, nil))
	for _, cut := range []string{"no ada/x@example.o", "no ada", `no ada\/x@exa`, "no ada/x@ex…"} {
		shown := hidden.Text(nil, cut, []byte(`{"email":"ada/x@example.org"}`))
		require.Equal(t, "no •••", strings.TrimSuffix(shown, "…"), "a text may be cut off in a value")
	}
	require.Equal(t, "no ad", hidden.Text(nil, "no ad", []byte(`{"email":"ada/x@example.org"}`)))
	const payload = `{"email":"ada/x@example.org","card":{"number":41110000}}`
	require.Equal(t, `••• and ••• and ••• are wrong`, hidden.Text([]string{"customer.moved"}, `ada/x@example.org and ada\/x@example.org and 41110000 are wrong`, []byte(payload)))
}

func TestMasksHideInMetadata(t *testing.T) {
	t.Parallel()
	shown := parsed("email", "card.number").Metadata([]string{"customer.moved"}, map[string]string{"Email": secret, "number": "4111", "tenant": "t", "body": `{"email":"ada@example.org"}`})
	require.Equal(t, map[string]string{"Email": "•••", "number": "•••", "tenant": "t", "body": `{"email":"•••"}`}, shown)
}

func TestHostileTextsAreMaskedInBoundedTime(t *testing.T) {
	t.Parallel()
	hidden := parsed("email")
	for _, part := range []string{"email ", "<email ", "aemail", `\"email\":\"`, `email={`, "\\", `{"email":`} {
		hidden.Text(nil, strings.Repeat(part, (256<<10)/len(part)), nil) // the test's time limit ends it if it is quadratic
	}
}
