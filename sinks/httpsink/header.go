package httpsink

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Headers of a request. Names are case-insensitive, as always in HTTP.
//
// Values that come from a notification may hold any text, a header may not:
// every byte outside printable ASCII, "%" itself and spaces at either end are
// percent-encoded, so that [net/url.PathUnescape] gives the text back. Plain
// ids, types and keys look the same before and after.
const (
	HeaderID         = "Waybill-Id"          // the notification's id, the same on every attempt
	HeaderType       = "Waybill-Type"        // its registered name
	HeaderVersion    = "Waybill-Version"     // the payload's version
	HeaderKey        = "Waybill-Key"         // the ordering key; absent without one
	HeaderOccurredOn = "Waybill-Occurred-On" // RFC 3339 in UTC, to the microsecond
	HeaderAttempt    = "Waybill-Attempt"     // from 1

	// HeaderIdempotencyKey carries the id once more, for receivers that know
	// this customary name. With a batch it is the batch's.
	HeaderIdempotencyKey = "Idempotency-Key"

	// HeaderMetaPrefix stands before the name of metadata that the configuration
	// lists. In the name everything but letters, digits, ".", "-" and "_" is percent-encoded;
	// its case is lost on the way. Some servers drop names with "_" unless told
	// otherwise (nginx: underscores_in_headers).
	HeaderMetaPrefix = "Waybill-Meta-"
)

// Headers of a signed request, from Standard Webhooks 1.0.0.
const (
	HeaderWebhookID        = "Webhook-Id"        // as Idempotency-Key, "." percent-encoded too: it parts the signed fields
	HeaderWebhookTimestamp = "Webhook-Timestamp" // of the attempt, in Unix seconds
	HeaderWebhookSignature = "Webhook-Signature" // for each secret, over "id.timestamp.body": "v1," and HMAC-SHA256, or "v1a," and ed25519, in base64
)

// Metadata with a header of its own, which it fills as it stands as long as it
// is printable ASCII: Content-Type (application/json where the metadata has
// none) and W3C Trace Context.
const (
	headerContentType = "Content-Type"
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"

	defaultContentType = "application/json"
)

// userAgent names Waybill and its version, unless the configuration does.
var userAgent = "waybill/" + version()

// header returns the headers of one attempt in the format json.
func (s *Sink) header(d *notification.Delivery) headerWriter {
	w := s.newHeader(6 + s.metadata.count(d.Metadata))
	w.set(HeaderID, encodeValue(d.ID))
	w.set(HeaderType, encodeValue(d.Type))
	w.set(HeaderVersion, strconv.Itoa(d.Version))
	w.set(HeaderAttempt, strconv.Itoa(d.Attempt))
	if d.Key != "" {
		w.set(HeaderKey, encodeValue(d.Key))
	}
	if !d.OccurredOn.IsZero() {
		w.set(HeaderOccurredOn, formatTime(d.OccurredOn))
	}
	w.setMetadata(d.Metadata, s.metadata)
	return w
}

// newHeader begins with what all requests have in common; size is how many
// headers will come on top.
func (s *Sink) newHeader(size int) headerWriter {
	size += 3 // User-Agent, Idempotency-Key, and Content-Type
	if s.signer.signs() {
		size += 3
	}
	h := make(http.Header, size+len(s.headers)) // a map grown too large costs more than all values
	for name, values := range s.headers {
		h[name] = values // shared: they are never written to
	}
	w := headerWriter{h, make([]string, 0, size)}
	if _, configured := h["User-Agent"]; !configured {
		w.set("User-Agent", userAgent)
	}
	return w
}

// finish makes a message of headers and body. It adds what tells a receiver that
// a request came before, and who sent it.
func (s *Sink) finish(w headerWriter, to place, id string, body []byte) message {
	w.set(HeaderIdempotencyKey, id)
	if s.signer.signs() {
		s.signer.sign(&w, to.url, id, s.now(), body)
	}
	return message{w.header, body}
}

// headerWriter fills a header whose values all lie in one allocation.
type headerWriter struct {
	header http.Header
	values []string
}

func (w *headerWriter) set(name, value string) {
	n := len(w.values)
	w.values = append(w.values, value)
	w.header[name] = w.values[n : n+1 : n+1]
}

// setMetadata sets what is selected of m.
func (w *headerWriter) setMetadata(m notification.Metadata, selected selection) {
	if m.Get(notification.MetadataContentType) == "" {
		w.set(headerContentType, defaultContentType)
	}
	for name, value := range m {
		if !selected.has(name) {
			continue
		}
		switch name {
		case notification.MetadataContentType:
			w.setPlain(headerContentType, value)
		case notification.MetadataTraceparent:
			w.setPlain(headerTraceparent, value)
		case notification.MetadataTracestate:
			w.setPlain(headerTracestate, value)
		default:
			// Two names that differ in case only share a header: both stay.
			h := metaHeader(name)
			if _, taken := w.header[h]; taken {
				w.header[h] = append(w.header[h], encodeValue(value))
			} else {
				w.set(h, encodeValue(value))
			}
		}
	}
}

// setPlain sets what has a syntax of its own and must not be encoded, unless it
// could not be sent otherwise.
func (w *headerWriter) setPlain(name, value string) {
	switch {
	case value == "":
	case isPlain(value):
		w.set(name, value)
	default:
		w.set(name, encodeValue(value))
	}
}

// formatTime is RFC 3339 with the microseconds that a store keeps.
func formatTime(t time.Time) string {
	return t.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
}

const hexDigits = "0123456789abcdef"

// encodeValue makes any text a header value: printable ASCII that neither
// starts nor ends with a space. url.PathUnescape undoes it.
func encodeValue(s string) string {
	if isPlain(s) && strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		c := s[i]
		edge := i == 0 || i == len(s)-1
		if c < ' ' || c > '~' || c == '%' || c == ' ' && edge {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// metaHeader makes the header name of a metadata, in the canonical case of
// http.CanonicalHeaderKey.
func metaHeader(name string) string {
	b := make([]byte, 0, len(HeaderMetaPrefix)+len(name)+16)
	b = append(b, HeaderMetaPrefix...)
	first := true
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z' && first:
			c -= 'a' - 'A'
		case 'A' <= c && c <= 'Z' && !first:
			c += 'a' - 'A'
		}
		if isAlphanumeric(c) || c == '-' || c == '.' || c == '_' {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
		first = c == '-'
	}
	return string(b)
}

// isPlain reports whether s can be a header value as it stands.
func isPlain(s string) bool {
	if s == "" {
		return true
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' '
}

// isToken reports whether s can be a header name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// version is that of the Waybill module in the running program.
func version() string {
	const module = "github.com/waybill-go/waybill"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return "devel"
}
