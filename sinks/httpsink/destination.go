package httpsink

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/waybill-go/waybill/framework/notification"
)

// maxURL is the longest URL in bytes. It is longer than most servers accept.
const maxURL = 8 << 10

// destination is where requests go: one URL, or one for each delivery.
type destination struct {
	fixed    endpoint
	template *template.Template // nil: all requests go to fixed
	// open reports that the host comes from data. Otherwise fixed has the scheme and host of
	// all URLs.
	open   bool
	method string
}

// endpoint is the URL of one request.
type endpoint struct {
	url    *url.URL // without user and password
	target string   // for errors: method, scheme and host
}

func newEndpoint(method string, u *url.URL) endpoint {
	return endpoint{u, method + " " + u.Scheme + "://" + u.Host}
}

// newDestination parses a URL or a template of one. It also returns the user and password in
// it.
func newDestination(method, raw string) (destination, *url.Userinfo, error) {
	d := destination{method: method}
	start := raw
	if strings.Contains(raw, "{{") {
		var err error
		if d.template, err = template.New("url").Option("missingkey=error").Parse(raw); err != nil {
			return destination{}, nil, fmt.Errorf("the template cannot be parsed: %w", err)
		}
		if name := unknownField(d.template.Root); name != "" {
			return destination{}, nil, fmt.Errorf("the template uses %s, which does not exist; there are .ID, .Type, .Version, .Key, .Metadata.NAME and .Meta \"NAME\"", name)
		}
		if start, d.open = beginning(d.template); d.open {
			return d, nil, checkOpen(start)
		}
	}
	u, err := parseURL(start, anyScheme)
	if err != nil {
		return destination{}, nil, err
	}
	user := u.User
	u.User = nil
	d.fixed = newEndpoint(method, u)
	return d, user, nil
}

// beginning returns the text before the first value. If that contains the host, it is cut off
// after the host, and open is false.
func beginning(t *template.Template) (text string, open bool) {
	if len(t.Root.Nodes) > 0 {
		if first, ok := t.Root.Nodes[0].(*parse.TextNode); ok {
			text = string(first.Text)
		}
	}
	_, rest, found := strings.Cut(text, "://")
	host := strings.IndexAny(rest, "/?#")
	if !found || host < 0 {
		return text, true
	}
	return text[:len(text)-len(rest)+host], false
}

// checkOpen checks the beginning of a template whose host comes from data: it must have the
// scheme, and must not have a user and password.
func checkOpen(start string) error {
	switch {
	case !strings.HasPrefix(start, "https://") && !strings.HasPrefix(start, "http://"):
		return errors.New("the template does not begin with https:// or http://; only host, path and query may come from data")
	case strings.Contains(start, "@"):
		return errors.New("user and password would go to hosts that come from data; use user and password, if that is what you want")
	}
	return nil
}

// unknownField returns the first field in a template that does not exist, or "". It does not
// look into the bodies of "with" and "range", where the dot is another value.
func unknownField(node parse.Node) string {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			return firstUnknown(n.Nodes)
		}
	case *parse.ActionNode:
		return unknownField(n.Pipe)
	case *parse.PipeNode:
		return firstUnknown(n.Cmds)
	case *parse.CommandNode:
		return firstUnknown(n.Args)
	case *parse.IfNode:
		return firstUnknown([]parse.Node{n.Pipe, n.List, n.ElseList})
	case *parse.WithNode:
		return unknownField(n.Pipe)
	case *parse.RangeNode:
		return unknownField(n.Pipe)
	case *parse.FieldNode:
		data := reflect.TypeFor[urlData]()
		_, field := data.FieldByName(n.Ident[0])
		_, method := data.MethodByName(n.Ident[0])
		if !field && !method {
			return n.String()
		}
	}
	return ""
}

func firstUnknown[N parse.Node](nodes []N) string {
	for _, n := range nodes {
		if name := unknownField(n); name != "" {
			return name
		}
	}
	return ""
}

// of returns the endpoint of a delivery. With an error, nothing can be sent.
func (d *destination) of(delivery *notification.Delivery) (endpoint, error) {
	if d.template == nil {
		return d.fixed, nil
	}
	var b strings.Builder
	if err := d.template.Execute(&b, newURLData(delivery)); err != nil {
		return endpoint{}, fmt.Errorf("url: %w", err)
	}
	u, err := parseGeneratedURL(b.String(), anyScheme)
	if err != nil {
		return endpoint{}, fmt.Errorf("url: the result of the template for this notification %w", err)
	}
	if d.open && u.User != nil {
		return endpoint{}, errors.New("url: the result of the template for this notification contains a user")
	}
	if d.open {
		return newEndpoint(d.method, u), nil
	}
	u.User = nil
	return endpoint{u, d.fixed.target}, nil
}

// parseGeneratedURL is parseURL for the result of a template. It also refuses URLs that are
// too long or have an empty part of the host or a dot segment in the path, since such a URL
// comes from unexpected data.
func parseGeneratedURL(raw string, schemes []string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("is %d bytes long, the limit is %d", len(raw), maxURL)
	}
	u, err := parseURL(raw, schemes)
	if err != nil {
		return nil, err
	}
	if host := u.Hostname(); strings.HasPrefix(host, ".") || strings.Contains(host, "..") {
		return nil, fmt.Errorf("has the host %q, which has an empty part", host)
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, fmt.Errorf("has %q in its path, which leads elsewhere", segment)
		}
	}
	return u, nil
}

// urlData is the data of a template.
type urlData struct {
	ID       urlValue
	Type     urlValue
	Version  int
	Key      urlValue
	Metadata map[string]urlValue
}

func newURLData(d *notification.Delivery) urlData {
	data := urlData{urlValue(d.ID), urlValue(d.Type), d.Version, urlValue(d.Key), make(map[string]urlValue, len(d.Metadata))}
	for name, value := range d.Metadata {
		data.Metadata[name] = urlValue(value)
	}
	return data
}

// Meta returns metadata whose name cannot be written after a dot in a template.
func (d urlData) Meta(name string) (urlValue, error) {
	value, ok := d.Metadata[name]
	if !ok {
		return "", fmt.Errorf("metadata %q is missing", name)
	}
	return value, nil
}

// urlValue is a text that templates compare unchanged and print percent-encoded, except the
// unreserved characters of RFC 3986. So it cannot change the structure of a URL.
type urlValue string

func (v urlValue) String() string {
	b := make([]byte, 0, len(v)+16)
	for i := range len(v) {
		if c := v[i]; isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHexDigits[c>>4], upperHexDigits[c&15])
		}
	}
	return string(b)
}

const upperHexDigits = "0123456789ABCDEF"

// anyScheme are the schemes of URLs.
var anyScheme = []string{"https", "http"}

// parseURL parses an absolute URL with one of the schemes. Its errors quote only scheme, host and
// port, because the rest may contain a secret.
func parseURL(raw string, schemes []string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("is missing; give the address for the requests, such as https://partner.example/hooks")
	}
	u, err := url.Parse(raw)
	if escape := url.EscapeError(""); errors.As(err, &escape) {
		return nil, errors.New("cannot be parsed: invalid URL escape; write %25 for a percent sign")
	}
	if err != nil {
		return nil, errors.New("cannot be parsed; check host and port, and percent-encode special characters of user and password")
	}
	port, _ := strconv.Atoi(u.Port()) // 0 for ""; Parse has checked that the others are digits
	switch {
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("scheme %q is not offered; start it with %s://", u.Scheme, strings.Join(schemes, ":// or "))
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case !isPlain(u.Host):
		return nil, fmt.Errorf("host %q is not ASCII; write an international name in its xn-- form", u.Host)
	case port > 65535:
		return nil, fmt.Errorf("port %d is above 65535", port)
	case u.Fragment != "":
		return nil, errors.New("the fragment after # would not be sent; leave it out")
	}
	return u, nil
}

// originOf returns scheme, host and port in the form of RFC 6454, section 6.2.
func originOf(u *url.URL) string {
	host, defaultPort := strings.ToLower(u.Hostname()), 443
	if u.Scheme == "http" {
		defaultPort = 80
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port, err := strconv.Atoi(u.Port()); err == nil && port != defaultPort {
		return u.Scheme + "://" + host + ":" + strconv.Itoa(port)
	}
	return u.Scheme + "://" + host
}
