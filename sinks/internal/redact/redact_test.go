package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestCredentialsAreRemovedFromTexts(t *testing.T) {
	t.Parallel()
	c := redact.New("short", "hunter2", "hunter2-and-more")
	require.Equal(t, "a *** b *** short", c.Text("a hunter2-and-more b hunter2 short"))
	c = c.WithShort("kite", "hat").With("orange", "plum")
	require.Equal(t, "*** *** *** hat plum", c.Text("hunter2 kite orange hat plum"))
	require.Equal(t, "***", c.With("another").Text("another"))
	require.Equal(t, "a ", c.TrimCut("a hunte"))
	require.Equal(t, "hunter2", redact.Credentials{}.Text("hunter2"))
}

func TestAnErrorKeepsWhatItWraps(t *testing.T) {
	t.Parallel()
	cause := errors.New("hunter2 is wrong")
	err := redact.New("hunter2").Error(sinks.Permanent(cause))
	require.EqualError(t, err, "permanent: *** is wrong")
	require.ErrorIs(t, err, cause)
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(err))
	require.NoError(t, redact.New("hunter2").Error(nil))
	require.Same(t, cause, redact.New("another").Error(cause))
}

// Servers repeat what they got in the format of their answers.
func TestEscapedAndEncodedCredentialsAreRemoved(t *testing.T) {
	t.Parallel()
	const credential = `aGVs<b>&8/"d29y"+ZGQ\n%41é==`
	asJSON, err := json.Marshal(credential)
	require.NoError(t, err)
	inJSON := string(asJSON[1 : len(asJSON)-1])
	for name, spelled := range map[string]string{
		"itself":               credential,
		"JSON":                 inJSON,
		"JSON in JSON":         strings.ReplaceAll(strings.ReplaceAll(inJSON, `\`, `\\`), `"`, `\"`),
		"JSON of PHP":          strings.ReplaceAll(inJSON, "/", `\/`),
		"HTML":                 html.EscapeString(credential),
		"HTML, all signs":      strings.NewReplacer("+", "&#43;", "/", "&#x2F;", "=", "&equals;").Replace(html.EscapeString(credential)),
		"a URL":                url.QueryEscape(credential),
		"a path":               url.PathEscape(credential),
		"a URL in lower case":  strings.ToLower(url.QueryEscape("=+/=+/")),
		"quoted":               strconv.Quote(credential),
		"quoted as ASCII":      strconv.QuoteToASCII(credential),
		"base64":               base64.StdEncoding.EncodeToString([]byte(credential)),
		"basic authentication": base64.StdEncoding.EncodeToString([]byte("user:" + credential)),
		"within base64":        base64.URLEncoding.EncodeToString([]byte("ab" + credential + "more")),
		"base64 in JSON":       strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(credential)), "/", `\/`),
		"hex":                  hex.EncodeToString([]byte(credential)),
	} {
		got := redact.New(credential, "=+/=+/").Text("before " + spelled + " after")
		require.Contains(t, got, "before ", name)
		require.Contains(t, got, " after", name)
		require.Contains(t, got, "***", name)
		require.LessOrEqual(t, len(got), len("before *** after")+14, "%s: %s", name, got)
	}
}

func TestWhatOnlyLooksLikeAnEntityHidesNoCredential(t *testing.T) {
	t.Parallel()
	for credential, spelled := range map[string]string{
		"ab&ltcd":     "ab&lt&#99;d",
		"ab&lt;cd":    "ab&lt&#59;cd",
		"ab&lting;cd": "ab&lting;c&#100;",
		"ab&cd;ef":    "ab&cd&semi;ef",
	} {
		require.Equal(t, "a=*** b", redact.New(credential).Text("a="+spelled+" b"), credential)
	}
}

func TestTextsWithoutCredentialsAreUnchanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "100% of &amp; and \\u00zz \\", `{"a": "\u0041\\"}`, "%", "&", "\\", "%4", "&#;", "\xff\xfe"} {
		require.Equal(t, text, redact.New("hunter2").Text(text))
	}
}

func TestACredentialIsFoundInAnyEscapes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		credential := rapid.StringMatching(`[a-z+/=&<>" ]{6,20}`).Draw(t, "credential")
		var spelled strings.Builder
		for i := range len(credential) {
			c := credential[i]
			spelled.WriteString(rapid.SampledFrom([]string{
				string(c), url.PathEscape(string(c)), html.EscapeString(string(c)), "%" + hex.EncodeToString([]byte{c}),
				"\\u00" + hex.EncodeToString([]byte{c}), "\\x" + hex.EncodeToString([]byte{c}), "&#" + strconv.Itoa(int(c)) + ";",
			}).Draw(t, "spelled"))
		}
		around := rapid.StringMatching(`[0-9\\%&;]{0,4}`)
		require.Contains(t, redact.New(credential).Text("|"+spelled.String()+"|"+around.Draw(t, "after")), "***")
	})
}
