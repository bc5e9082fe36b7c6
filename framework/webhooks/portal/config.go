package portal

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/waybill-go/waybill/framework/internal/look"
)

// The default colours of links and buttons.
const (
	DefaultAccent     = look.Accent
	DefaultAccentDark = look.AccentDark
)

// Config configures a portal. Only Authorize is required.
type Config struct {
	// Authorize returns the tenant whose endpoints a request may see and change. It is the application's own
	// authorization, such as of its session, and is called for each request, concurrently. An error is
	// logged, and answered with 403; [ErrUnauthenticated] is answered with 401. An empty tenant is refused: it
	// never means all. Required.
	Authorize func(*http.Request) (tenant string, err error)
	// Prefix is the path below which the portal is served, such as /webhooks, with a slash at the beginning and
	// none at the end. Requests must include it. Default: none.
	Prefix string
	// Name is the title of the pages. Default: Webhooks.
	Name string
	// Logo is the address of a picture beside the name: a path of this server, or an https URL. Default: none.
	Logo string
	// Accent and AccentDark are the colours of links and buttons, on light and on dark ground, as #rrggbb.
	// Their contrast to nearly white and to nearly black must be at least 4.5 to 1, as WCAG demands. Default: [DefaultAccent] and [DefaultAccentDark].
	Accent, AccentDark string
	// Frames are the origins whose pages may show the portal in a frame, such as https://app.example. A page of
	// the portal's own origin always may.
	Frames []string
	// Describe returns what customers should know about a type: a text, a JSON Schema of its payload and an
	// example, each of which may be empty. Called for each type that a page shows. Default: an example with empty
	// values, if the type is registered and JSON.
	Describe func(typ string) (text string, schema, example []byte)
	// Hide reports whether a type is not offered. It only hides: who selects all types gets what the routes
	// lead to the sink. Default: none is hidden.
	Hide func(typ string) bool
	// Logger gets a line for each request that is refused or fails in the server, and for each secret that is
	// shown. No line has secrets, or what an endpoint has answered. Default: slog's default.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "Webhooks")
	c.Accent, c.AccentDark = cmp.Or(c.Accent, DefaultAccent), cmp.Or(c.AccentDark, DefaultAccentDark)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Hide == nil {
		c.Hide = func(string) bool { return false }
	}
}

// check returns all mistakes, joined.
func (c *Config) check() error {
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if c.Authorize == nil {
		mistake("Authorize is missing: name the tenant of each request")
	}
	if p := c.Prefix; p != "" && (p == "/" || path.Clean("/"+p) != p || strings.ContainsAny(p, "{}")) {
		mistake("Prefix is %q: use a path such as /webhooks", c.Prefix)
	}
	if _, err := originOf(c.Logo); err != nil {
		mistake("Logo is %q: use a path such as /logo.svg, or an https URL", c.Logo)
	}
	for _, frame := range c.Frames {
		if origin, err := originOf(frame); err != nil || origin != frame {
			mistake("Frames has %q: use an origin such as https://app.example", frame)
		}
	}
	for name, colour := range map[string]string{"Accent": c.Accent, "AccentDark": c.AccentDark} {
		if !isColour.MatchString(colour) {
			mistake("%s is %q: use a colour such as %s", name, colour, DefaultAccent)
		} else if contrast := look.Contrast(colour, name == "AccentDark"); contrast < look.Legible {
			mistake("%s is %s, whose contrast to the ground is %.1f to 1: use a colour with at least %.1f to 1, so that people can read it", name, colour, contrast, look.Legible)
		}
	}
	return errors.Join(mistakes...)
}

// originOf returns the origin of an https URL; "" for a path and for "".
func originOf(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", err
	case text == "" || u.Scheme == "" && u.Host == "" && strings.HasPrefix(text, "/"):
		return "", nil
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsAny(u.Host, "; ,'"):
		return "", errors.New("not an https URL")
	}
	return u.Scheme + "://" + u.Host, nil
}

// policy returns the Content-Security-Policy: everything comes from the portal, except the logo.
func (c *Config) policy() string {
	logo, _ := originOf(c.Logo)
	return "default-src 'none'; style-src 'self'; img-src " + strings.TrimSpace("'self' "+logo) + "; form-action 'self'; base-uri 'none'; frame-ancestors " +
		strings.Join(append([]string{"'self'"}, c.Frames...), " ")
}

var isColour = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)
