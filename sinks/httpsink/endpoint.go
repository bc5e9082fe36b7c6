package httpsink

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// urlRules are what the URL of an endpoint must keep to.
type urlRules struct {
	schemes []string
	guard   *guard // nil for no guard
}

// parse parses the URL of an endpoint. Its errors quote only scheme, host and port.
func (r urlRules) parse(raw string) (*url.URL, error) {
	u, err := parseGeneratedURL(raw, r.schemes)
	switch {
	case err != nil:
		return nil, err
	case u.User != nil:
		return nil, errors.New("contains a user or password, which a URL does not keep secret; use a header, such as Authorization")
	}
	return u, r.checkHost(u.Hostname())
}

// checkHost refuses a host without looking it up, if it is certain that the guard refuses it.
func (r urlRules) checkHost(host string) error {
	if r.guard == nil {
		return nil
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return r.guard.check(address)
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case last == "localhost", last == "localdomain": // RFC 6761, section 6.3, and what /etc/hosts usually has
		if r.guard.check(netip.MustParseAddr("127.0.0.1")) != nil && r.guard.check(netip.IPv6Loopback()) != nil {
			return fmt.Errorf("host %q is this host, which the guard refuses; guard.allow makes exceptions", host)
		}
	case isNumber(last):
		return fmt.Errorf("host %q is neither a name nor an IP address; write the address like 192.0.2.1", host)
	}
	return nil
}

// isNumber reports whether some systems read the end of a host as a number, and the host as an
// address, such as 127.1 and 0x7f000001.
func isNumber(text string) bool {
	hex, isHex := strings.CutPrefix(text, "0x")
	return isHex && strings.Trim(hex, "0123456789abcdef") == "" || text != "" && strings.Trim(text, "0123456789") == ""
}

// CheckHeaders reports the mistakes in headers that an endpoint gets with every request, joined;
// each begins with headers and the name. Names and values are those of Config.Headers.
func CheckHeaders(headers map[string]string) error {
	_, err := parseHeaders(headers, FormatEnvelope)
	return err
}

// parseHeaders returns the headers of every request by their names in net/http. The error joins all
// mistakes.
func parseHeaders(headers map[string]string, format string) (http.Header, error) {
	var mistakes []error
	parsed := make(http.Header, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		mistake := ""
		switch _, twice := parsed[canonical]; {
		case twice:
			mistake = "is given twice, in different case"
		case !isToken(name):
			name, mistake = strconv.Quote(name), "not a header name; use letters, digits and dashes"
		case reserved(canonical, format) != "":
			mistake = reserved(canonical, format)
		case !isPlain(headers[name]):
			mistake = "the value is not printable ASCII without spaces around it; encode it as the receiver expects"
		default:
			parsed[canonical] = []string{headers[name]}
			continue
		}
		mistakes = append(mistakes, fmt.Errorf("headers.%s: %s", name, mistake))
	}
	return parsed, errors.Join(mistakes...)
}

// reserved returns why a header cannot be configured, or "" if it can.
func reserved(canonical, format string) string {
	switch canonical {
	case "Host":
		return "comes from url"
	case "Content-Type":
		if format == FormatJSON || format == FormatBinary {
			return "comes from the notification's metadata " + strconv.Quote("content-type")
		}
		return "is that of the format"
	case headerTraceparent, headerTracestate:
		return "belongs to the notification and cannot be set"
	case webhook.HeaderIdempotencyKey:
		return "is the notification's id"
	case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding":
		return "belongs to the connection and cannot be set"
	}
	if strings.HasPrefix(canonical, "Waybill-") || strings.HasPrefix(canonical, "Webhook-") {
		return "is written by the sink; choose another name"
	}
	if strings.HasPrefix(canonical, eventHeaderPrefix) && isEvents(format) {
		return "belongs to the event; choose another name"
	}
	return ""
}

// CheckSecret reports why a text cannot be the secret of an endpoint. It must be one of Standard
// Webhooks: "whsec_" and the base64 of 24 to 64 bytes, or "whsk_" and that of an ed25519 key. The
// error does not quote it.
func CheckSecret(secret string) error {
	_, err := parseSecret(secret)
	return err
}

func parseSecret(secret string) (signature.Key, error) {
	if secret == "" {
		return nil, fmt.Errorf("is empty; make one with: echo %s$(openssl rand -base64 32)", signature.SecretPrefix)
	}
	return signature.Parse(secret)
}

// Keys are the parsed secrets of an endpoint, for many requests. The zero value has none. They are
// safe for concurrent use.
type Keys struct {
	keys        []signature.Key
	credentials redact.Credentials
}

// Mask returns a function for texts of the answer to a request with these headers: it replaces what some servers
// repeat, the secrets and each value of at least 4 bytes, by "***", also if it is escaped, encoded, or cut off at the
// end of the body of an [Exchange].
func (k Keys) Mask(headers map[string]string) func(text string) string {
	credentials := k.with(headers)
	return func(text string) string {
		masked := credentials.Text(text)
		if len(text) >= maxExchangeBody {
			masked = credentials.TrimCut(masked)
		}
		return masked
	}
}

// with returns what answers to a request must not repeat.
func (k Keys) with(headers map[string]string) redact.Credentials {
	var values []string
	for name, value := range headers {
		value = strings.TrimSpace(value)
		values = append(values, value)
		if _, token, found := strings.Cut(value, " "); found && strings.HasSuffix(http.CanonicalHeaderKey(name), "Authorization") {
			values = append(values, token)
		}
	}
	return k.credentials.WithShort(values...)
}

// ParseSecrets parses secrets by the rules of [CheckSecret]. The error joins all mistakes, and does
// not quote a secret.
func ParseSecrets(secrets []string) (Keys, error) {
	var (
		k        Keys
		texts    []string
		mistakes []error
	)
	for i, secret := range secrets {
		key, err := parseSecret(secret)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("secrets[%d]: %w", i, err))
			continue
		}
		k.keys, texts = append(k.keys, key), append(texts, signature.Credential(secret))
	}
	if len(mistakes) > 0 {
		return Keys{}, errors.Join(mistakes...)
	}
	k.credentials = redact.New(texts...)
	return k, nil
}
