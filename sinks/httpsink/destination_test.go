package httpsink

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// hosted returns a delivery whose metadata names the host.
func hosted(host string) *notification.Delivery {
	d := newDelivery()
	d.Metadata["host"] = host
	return d
}

func TestATemplateMakesTheURLOfEachNotification(t *testing.T) {
	r := newReceiver(t)
	for template, want := range map[string]string{
		"/hooks/{{.Type}}/v{{.Version}}":                                  "/hooks/order.placed/v3",
		"/{{.Metadata.tenant}}":                                           "/ac%2Fme%20%26%20co%3F",
		`/{{.Meta "order-id"}}?key={{.Key}}&id={{.ID}}`:                   "/42?key=k%26admin%3D1&id=a%2Bb",
		`/{{if eq .Type "order.placed"}}orders{{else}}others{{end}}`:      "/orders",
		`/{{if eq .Metadata.tenant "ac/me & co?"}}acme{{end}}`:            "/acme",
		`/{{printf "%s-%v" .Key .Metadata.tenant}}`:                       "/k%26admin%3D1-ac%2Fme%20%26%20co%3F",
		`/{{with .Metadata.tenant}}{{.}}{{end}}`:                          "/ac%2Fme%20%26%20co%3F",
		`/{{range $name, $value := .Metadata}}{{$name}}{{$value}}{{end}}`: "/order-id42tenantac%2Fme%20%26%20co%3F",
	} {
		sink := r.sink(t, Config{URL: r.URL + template})
		d := newDelivery()
		d.ID, d.Type, d.Version, d.Key = "a+b", "order.placed", 3, "k&admin=1"
		d.Metadata = notification.Metadata{"tenant": "ac/me & co?", "order-id": "42"}

		_, err := sink.Deliver(t.Context(), d)

		require.NoError(t, err, template)
		all := r.all()
		assert.Equal(t, want, all[len(all)-1].RequestURI, template)
	}
}

func TestATemplateWithAFixedHostIsAFixedDestination(t *testing.T) {
	r := newReceiver(t)
	withUser := strings.Replace(r.URL, "http://", "http://shop:secret@", 1)
	sink := r.sink(t, Config{URL: withUser + "/{{.Type}}"})
	assert.False(t, sink.destination.open)
	require.NoError(t, sink.CheckHealth(t.Context()))
	_, err := sink.Deliver(t.Context(), newDelivery())
	require.NoError(t, err)
	got := r.only(t)
	assert.Equal(t, "Basic c2hvcDpzZWNyZXQ=", got.Header.Get("Authorization"))
	assert.Equal(t, "/sinktest.happened", got.RequestURI)

	gone := newSink(t, Config{URL: "http://" + servertest.Unused + "/{{.Type}}"})
	_, err = gone.Deliver(t.Context(), newDelivery())
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestANotificationWithoutAValidURLIsInvalid(t *testing.T) {
	for name, tt := range map[string]struct{ url, value, want string }{
		"metadata is missing":    {"https://a.example/{{.Metadata.other}}", "x", "no entry for key"},
		"metadata is missing, 2": {`https://a.example/{{.Meta "o-t"}}`, "x", `metadata "o-t" is missing`},
		"leads up":               {"https://a.example/hooks/{{.Metadata.host}}/x", "..", `has ".." in its path`},
		"leads nowhere":          {"https://a.example/hooks/{{.Metadata.host}}", ".", `has "." in its path`},
		"half an escape":         {"https://a.example/{{slice .Metadata.host 0 1}}%{{.Metadata.host}}", "zz", "invalid URL escape"},
		"too long":               {"https://a.example/{{.Metadata.host}}", strings.Repeat("€", 4000), "the limit is 8192"},
		"a path in the host":     {"https://{{.Metadata.host}}.partner.example/", "evil.example/", "cannot be parsed"},
		"a user in the host":     {"https://{{.Metadata.host}}/", "user@evil.example", "cannot be parsed"},
		"a port in the host":     {"https://{{.Metadata.host}}/", "partner.example:22", "cannot be parsed"},
		"a query in the host":    {"https://{{.Metadata.host}}.partner.example/", "evil.example?", "cannot be parsed"},
		"an international host":  {"https://{{.Metadata.host}}/", "münchen.example", "xn--"},
		"an empty host":          {"https://{{.Metadata.host}}/", "", "has no host"},
		"an empty label":         {"https://{{.Metadata.host}}.partner.example/", "", "which has an empty part"},
		"a port that is none":    {"https://a{{.Metadata.host}}.example:{{.Metadata.host}}/", "70000", "port 70000"},
		"line ends":              {"https://{{.Metadata.host}}/", "a.example\r\nX: y", "cannot be parsed"},
	} {
		_, err := newSink(t, Config{URL: tt.url}).Deliver(t.Context(), hosted(tt.value))
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "url: ", name)
		assert.ErrorContains(t, err, tt.want, name)
	}
}

func TestInvalidTemplatesAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"https://a.example/{{.Type":                        "the template cannot be parsed",
		"https://a.example/{{frob .Type}}":                 `function "frob" not defined`,
		"https://a.example/{{.Tenant}}":                    "the template uses .Tenant, which does not exist; there are .ID",
		"https://a.example/{{if .Tenant}}x{{end}}":         "uses .Tenant",
		"https://a.example/{{if .Type}}{{.Tenant}}{{end}}": "uses .Tenant",
		"{{.Metadata.url}}":                                "does not begin with https:// or http://",
		"{{.Metadata.scheme}}://a.example/":                "does not begin with https:// or http://",
		"ftp://{{.Metadata.host}}/":                        "does not begin with https:// or http://",
		"ftp://a.example/{{.Type}}":                        `scheme "ftp" is not offered`,
		"https://u:p@{{.Metadata.host}}/":                  "would go to hosts that come from data",
	} {
		_, err := New(sinks.Instance{}, Config{URL: raw})
		require.ErrorContains(t, err, "url: ", raw)
		assert.ErrorContains(t, err, want, raw)
	}
}

// No value can change another part of the URL.
func FuzzAValueDoesNotChangeTheStructureOfAURL(f *testing.F) {
	for _, s := range append([]string{"..", "/../", "a/b", "?x", "#x", "@evil.example", "evil.example", "%2e%2e", "a&b=c", "[::1]"}, hostileTexts...) {
		f.Add(s)
	}
	inPath, _, err := newDestination("POST", "https://partner.example/hooks/{{.Metadata.v}}/end?q={{.Metadata.v}}&last=1")
	require.NoError(f, err)
	inHost, _, err := newDestination("POST", "https://{{.Metadata.v}}.partner.example/hooks")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		d := newDelivery()
		d.Metadata = notification.Metadata{"v": s}
		if to, err := inPath.of(d); err == nil {
			again, err := url.Parse(to.url.String())
			require.NoError(t, err)
			require.Equal(t, "partner.example", again.Host)
			require.Equal(t, "/hooks/"+s+"/end", again.Path)
			require.Equal(t, 3, strings.Count(again.EscapedPath(), "/"))
			require.Equal(t, url.Values{"q": {s}, "last": {"1"}}, again.Query())
		} else {
			require.True(t, s == "." || s == ".." || strings.Contains("/"+s+"/", "/./") || strings.Contains("/"+s+"/", "/../") || len(s) > 1000, "%q: %v", s, err)
		}
		if to, err := inHost.of(d); err == nil {
			require.Equal(t, s+".partner.example", to.url.Host)
			require.Equal(t, "/hooks", to.url.RequestURI())
			require.Nil(t, to.url.User)
		}
	})
}

func FuzzATemplateNeverPanics(f *testing.F) {
	for _, s := range []string{"https://a.example/{{.Type}}", "https://{{.Metadata.host}}:{{.Version}}/", `http://a/{{printf "%d%x" .Type .Key}}`, "http://[::1%25{{.Key}}]/", "{{", "http://{{.ID}}@b/"} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, raw, value string) {
		destination, _, err := newDestination("POST", raw)
		if err != nil || strings.Contains(raw, "range") || strings.Contains(raw, "template") || strings.Contains(raw, "block") {
			return // the user may choose expressions that run for a long time
		}
		d := newDelivery()
		d.ID, d.Key, d.Metadata = value, value, maps.Clone(notification.Metadata{"host": value})
		to, err := destination.of(d)
		if err != nil {
			return
		}
		require.Nil(t, to.url.User)
		require.NotEmpty(t, to.url.Host)
		if !destination.open {
			require.Equal(t, destination.fixed.url.Host, to.url.Host)
		}
	})
}

func TestADestinationIsSchemeHostAndPort(t *testing.T) {
	for raw, origin := range map[string]string{
		"https://partner.example/hooks?a=b":      "https://partner.example",
		"HTTPS://Partner.EXAMPLE:443":            "https://partner.example",
		"https://user:password@partner.example/": "https://partner.example",
		"https://partner.example:0443":           "https://partner.example",
		"https://partner.example:":               "https://partner.example",
		"https://partner.example:80":             "https://partner.example:80",
		"http://partner.example:80/":             "http://partner.example",
		"http://partner.example:443":             "http://partner.example:443",
		"https://other.partner.example":          "https://other.partner.example",
		"https://[2001:DB8::1]:8443/":            "https://[2001:db8::1]:8443",
		"https://[2001:db8::1]:443/":             "https://[2001:db8::1]",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		assert.Equal(t, origin, originOf(u), raw)
	}
}
