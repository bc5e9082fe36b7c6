package portal_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	xhtml "golang.org/x/net/html"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

// hostileTexts try to break out of where they are shown.
var hostileTexts = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg onload=alert(1)>`, `</textarea><script>alert(1)</script>`, `</pre></title><script>alert(1)</script>`,
	`javascript:alert(1)`, `{{.Secret}}`, "a\u202egnp.exe", "a\u2066b\u200f", "\u200b\ufeff", "\x1b[2J\x07", "a\r\nSet-Cookie: x=1", strings.Repeat("x", 480), "&lt;b&gt;", `\u003cscript\u003e`, "<!--", "]]>",
}

// elements returns the names of the elements of a page, and fails if one of them comes from a text.
func elements(t *testing.T, page string) {
	t.Helper()
	root, err := xhtml.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for n := range root.Descendants() {
		if n.Type == xhtml.TextNode && n.Parent.Data != "textarea" {
			require.False(t, strings.ContainsAny(n.Data, "\u202e\u2066\u200f\u200b\ufeff\x1b\x07"), "%q", n.Data)
		}
		if n.Type != xhtml.ElementNode {
			continue
		}
		require.NotContains(t, []string{"script", "iframe", "object", "img", "b"}, n.Data, page)
		for _, a := range n.Attr {
			require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style", "%s %s", n.Data, a.Key)
			if a.Key == "href" || a.Key == "action" || a.Key == "src" {
				require.Regexp(t, `^(/|#|https://www\.standardwebhooks\.com$)`, a.Val)
			}
		}
	}
}

func TestHostileTextsStayTexts(t *testing.T) {
	t.Parallel()
	for _, text := range hostileTexts {
		s := newSite(t, func(c *portal.Config, _ *webhooks.Config) {
			c.Describe = func(string) (string, []byte, []byte) {
				return text, []byte(`"` + text + `"`), []byte(`{"a":"` + text + `"}`)
			}
		})
		e := s.create("acme", webhooks.Settings{URL: "https://acme.example/" + url.PathEscape(text), Description: text, When: `payload.a == "` + strings.NewReplacer(`"`, `'`, "\r", "", "\n", "", "\\", "").Replace(text) + `"`})
		a := s.attempt(e, func(a *store.Attempt) {
			a.Type, a.Error, a.Delivery = text, "transient: "+text, text
			a.Request = store.Exchange{Header: map[string][]string{text: {text, text}}, Body: text}
			a.Answer = store.Exchange{Header: map[string][]string{text: {text}}, Body: `{"a": "` + text + `", "b": [` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `]}`}
		})
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.store.MarkEndpoints(t.Context(), tx, store.EndpointMarks{Trouble: map[string]string{e.ID: text}})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		_, err = s.endpoints.Disable(t.Context(), "acme", e.ID, text)
		require.NoError(t, err)
		at := "/endpoints/" + e.ID
		for _, path := range []string{"/", "/new", at, at + "/delete", "/attempts/" + a.ID, at + "?delivery=" + url.QueryEscape(text), at + "?type=" + url.QueryEscape(text), at + "?outcome=" + url.QueryEscape(text)} {
			page := s.get(path)
			require.Less(t, page.status, 500, "%s: %s", path, page.text)
			elements(t, page.text)
		}
		require.Contains(t, html.UnescapeString(s.get(at+"/edit").text), text, "a form has the text as it is")
		page := s.post("/new", url.Values{"url": {text}, "description": {text}, "type": {text}, "patterns": {text}, "when": {text}, "headers": {text + ": " + text}, "rate": {text}, "secret": {text}, "key": {"k"}})
		require.Equal(t, http.StatusUnprocessableEntity, page.status)
		for _, path := range []string{"", "/attempts"} {
			require.Equal(t, http.StatusOK, s.call("GET", at+path, "").status)
		}
		require.Equal(t, http.StatusOK, s.call("GET", "/attempts/"+a.ID, "").status)
		require.NotContains(t, s.log.String(), "alert(1)")
	}
}

func TestAnAnswerOfAnEndpointBreaksNoPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, body := range append(hostileTexts, "\xff\xfe\x00binary", strings.Repeat("[", 8000), strings.Repeat("a", 100_000), "") {
		e := s.create("acme", webhooks.Settings{URL: receiver(t, 400, map[string]string{"X-Answer": "<script>alert(1)</script>"}, body)})
		page := s.post("/endpoints/"+e.ID+"/test", nil)
		require.Equal(t, http.StatusOK, page.status, page.text)
		elements(t, page.text)
		require.Contains(t, page.text, "&lt;script&gt;alert(1)&lt;/script&gt;")
		require.Equal(t, http.StatusOK, s.call("POST", "/endpoints/"+e.ID+"/test", "").status)
	}
	require.NotContains(t, s.log.String(), "alert(1)")
}
