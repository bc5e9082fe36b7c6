package webhooks

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// Errors of endpoints.
var (
	// ErrInvalid: an endpoint cannot be like this. It wraps a *FieldError for each mistake, and nothing was
	// written.
	ErrInvalid = errors.New("invalid endpoint")
	// ErrUnknown: the tenant has no endpoint with this id.
	ErrUnknown = errors.New("unknown endpoint")
	// ErrChanged: someone else has changed the endpoint meanwhile.
	ErrChanged = errors.New("the endpoint was changed meanwhile")
	// ErrDisabled: the endpoint is disabled.
	ErrDisabled = errors.New("the endpoint is disabled")
	// ErrKeyUsed: the key of a new endpoint was used for a different one.
	ErrKeyUsed = errors.New("the key was already used for a different endpoint")
	// ErrTooMany: the tenant has as many endpoints as it may have.
	ErrTooMany = store.ErrTooManyEndpoints
)

// FieldError is a mistake in a field of an endpoint, with its name in JSON.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// Settings are what people set of an endpoint.
type Settings struct {
	// URL gets the requests; https, unless Config.AllowHTTP. Required.
	URL string
	// Description is for people, at most 2,000 bytes.
	Description string
	// Types are the types to deliver: patterns as in routes, at most 100 with 8 KiB in all. Default: all, which is *.
	Types []string
	// When is a condition in the language of routes, such as payload.total > 100. If it fails for a
	// notification, the notification is delivered, and the endpoint's Trouble says so. At most 2,000 bytes. Default:
	// always.
	When string
	// Headers are extra headers of each request. They are kept like secrets.
	Headers map[string]string
	// Rate limits the deliveries to the endpoint, for each forwarder. Default: no limit.
	Rate settings.Rate
}

// NewEndpoint are the settings of an endpoint to create.
type NewEndpoint struct {
	Settings
	// Tenant is whose endpoint it is. Required.
	Tenant string
	// Key makes Create repeatable: a tenant gets one endpoint for a key, which its id is made from. At most 255
	// bytes; with a UUIDv7 the endpoint is in the order of creation as others are. Default: none.
	Key string
	// Secret is a secret that the customer has already: whsec_ and base64 of 24 to 64 bytes. Default: a
	// new one.
	Secret string
	// Asymmetric makes an ed25519 key (v1a) in place of a shared secret: the customer gets only the public
	// key, so that no one else can sign, and nothing of it must be kept secret. It excludes Secret.
	Asymmetric bool
}

// Endpoint is an address of a customer.
type Endpoint struct {
	Settings
	// ID is unique among all tenants.
	ID     string
	Tenant string
	// DisabledReason says why it gets nothing since DisabledAt; "" if it is enabled.
	DisabledReason string
	DisabledAt     time.Time
	// FailingSince is when the first of the attempts failed since which none has succeeded; zero if the
	// last one succeeded.
	FailingSince time.Time
	// Trouble says what is wrong with the settings, such as a condition that fails; "" is nothing.
	Trouble              string
	CreatedAt, ChangedAt time.Time
	// Version changes with the settings.
	Version int64

	private private
	broken  error // ErrKey, if private could not be read
}

// Enabled reports whether the endpoint gets notifications.
func (e *Endpoint) Enabled() bool { return e.DisabledReason == "" }

// Locked returns why the secrets of the endpoint cannot be read, as [ErrKey]; nil if they can. Until then its
// deliveries wait, and it can only be deleted.
func (e *Endpoint) Locked() error { return e.broken }

// Limits of the texts of an endpoint, in bytes: databases check the tenant in bytes.
const (
	maxTenant      = 255
	maxKey         = 255
	maxURL         = 2000
	maxDescription = 2000
	maxTypes       = 100 // patterns
	maxTypeBytes   = 8 << 10
	maxWhen        = 2000
	maxHeaders     = 20 // headers
	maxHeaderBytes = 4 << 10
)

// check returns all mistakes in the settings, as ErrInvalid.
func (s *Settings) check(c *Config, types *registry.Registry) error {
	var mistakes []error
	mistake := func(field string, err error) {
		if err != nil {
			mistakes = append(mistakes, &FieldError{field, err})
		}
	}
	switch {
	case s.URL == "":
		mistake("url", errors.New("is missing; write the address that gets the requests, such as https://customer.example/hooks"))
	case len(s.URL) > maxURL:
		mistake("url", fmt.Errorf("is %d bytes long, more than %d", len(s.URL), maxURL))
	default:
		mistake("url", c.CheckURL(s.URL))
	}
	mistake("description", checkText(s.Description, maxDescription))
	if bytes := len(strings.Join(s.Types, "")); len(s.Types) > maxTypes || bytes > maxTypeBytes {
		mistake("types", fmt.Errorf("are %d with %d bytes, more than %d or %d bytes; use prefixes such as order.*", len(s.Types), bytes, maxTypes, maxTypeBytes))
	} else {
		for _, pattern := range s.Types {
			mistake("types", checkPattern(pattern, types))
		}
	}
	if err := checkText(s.When, maxWhen); err != nil {
		mistake("when", err)
	} else if s.When != "" {
		_, err := route.CompileCondition(s.When)
		mistake("when", err)
	}
	mistake("headers", checkHeaders(s.Headers))
	if s.Rate != (settings.Rate{}) {
		_, err := settings.ParseRate(s.Rate.String())
		mistake("rate", err)
	}
	return invalid(mistakes)
}

// invalid returns mistakes as one error; nil if there are none.
func invalid(mistakes []error) error {
	if len(mistakes) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(mistakes...))
}

func checkText(text string, most int) error {
	switch {
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return errors.New("is not text: it is not UTF-8, or contains a NUL byte")
	case len(text) > most:
		return fmt.Errorf("is %d bytes long, more than %d", len(text), most)
	}
	return nil
}

// checkPattern reports why a pattern selects no types. If the types are known, it must match one.
func checkPattern(pattern string, types *registry.Registry) error {
	if route.ValidatePattern(pattern) != nil {
		return fmt.Errorf("%q is no pattern: use a type, a prefix followed by .*, or *", pattern)
	}
	if strings.HasPrefix(pattern, "_") {
		return fmt.Errorf("%q is reserved: types that begin with _ are never delivered to customers", pattern)
	}
	if types == nil || len(types.Types()) == 0 {
		return nil
	}
	for _, t := range types.Types() {
		if matchesAny([]string{pattern}, append([]string{t.Name}, t.Aliases...)) {
			return nil
		}
	}
	return fmt.Errorf("%q matches no type: use one of the application's types, a prefix followed by .*, or *", pattern) // it names none, since a portal may hide some
}

// matchesAny reports whether one of the patterns matches one of the names of a type.
func matchesAny(patterns, names []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return route.Matches(pattern, name) })
	})
}

func checkHeaders(headers map[string]string) error {
	bytes := 0
	for name, value := range headers {
		bytes += len(name) + len(value)
	}
	if len(headers) > maxHeaders || bytes > maxHeaderBytes {
		return fmt.Errorf("are %d with %d bytes, more than %d or %d bytes", len(headers), bytes, maxHeaders, maxHeaderBytes)
	}
	return httpsink.CheckHeaders(headers)
}

// keyedID returns the id of the endpoint of a tenant's key: a UUIDv8, or
// a UUIDv7 with the time of the key if that is one.
func keyedID(tenant, key string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + key))
	id := uuid.UUID(sum[:16])
	version := byte(8)
	if u, err := uuid.Parse(key); err == nil && u.Version() == 7 {
		version = 7
		copy(id[:6], u[:6])
	}
	id[6], id[8] = id[6]&0x0f|version<<4, id[8]&0x3f|0x80
	return id.String()
}

// Prefixes of secrets and keys, as in Standard Webhooks.
const (
	prefixSecret  = "whsec_"
	prefixPrivate = "whsk_"
	prefixPublic  = "whpk_"
)

// newSecret makes a secret for signing.
func newSecret(asymmetric bool) (string, error) {
	prefix, length := prefixSecret, 32
	if asymmetric {
		prefix, length = prefixPrivate, ed25519.SeedSize
	}
	random := make([]byte, length)
	_, err := rand.Read(random)
	return prefix + base64.StdEncoding.EncodeToString(random), err
}

// shown returns what the customer verifies with: the public key of an ed25519 key, or the secret itself.
func shown(signs string) string {
	encoded, asymmetric := strings.CutPrefix(signs, prefixPrivate)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !asymmetric || err != nil || len(key) < ed25519.SeedSize {
		return signs
	}
	public := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]).Public().(ed25519.PublicKey)
	return prefixPublic + base64.StdEncoding.EncodeToString(public)
}
