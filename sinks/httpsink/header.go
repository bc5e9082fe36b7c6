package httpsink

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Metadata with standard headers: Content-Type (application/json if the metadata has none) and
// W3C Trace Context. Their values are not encoded if they are printable ASCII.
const (
	headerContentType = "Content-Type"
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"

	defaultContentType = "application/json"
)

// userAgent is the default of the header User-Agent.
var userAgent = "waybill/" + version()

// header returns the headers of one attempt in the format json.
func (s *Sink) header(d *notification.Delivery) headerWriter {
	w := s.newHeader(6 + s.metadata.count(d.Metadata))
	w.set(webhook.HeaderID, encodeValue(d.ID))
	w.set(webhook.HeaderType, encodeValue(d.Type))
	w.set(webhook.HeaderVersion, strconv.Itoa(d.Version))
	w.set(webhook.HeaderAttempt, strconv.Itoa(d.Attempt))
	if d.Key != "" {
		w.set(webhook.HeaderKey, encodeValue(d.Key))
	}
	if !d.OccurredOn.IsZero() {
		w.set(webhook.HeaderOccurredOn, envelope.FormatTime(d.OccurredOn))
	}
	w.setMetadata(d.Metadata, s.metadata)
	return w
}

// newHeader makes the headers that all requests of the sink have; size is the number of further
// headers.
func (s *Sink) newHeader(size int) headerWriter { return newHeader(s.headers, s.keys, size) }

// newHeader makes the headers that all requests have; size is the number of further headers.
func newHeader(configured http.Header, keys []signature.Key, size int) headerWriter {
	size += 3 // User-Agent, Idempotency-Key, and Content-Type
	if len(keys) > 0 {
		size += 3
	}
	h := make(http.Header, size+len(configured)) // growing the map would cost more than all values
	for name, values := range configured {
		h[name] = values // shared, because they are never changed
	}
	w := headerWriter{h, make([]string, 0, size)}
	if _, own := h["User-Agent"]; !own {
		w.set("User-Agent", userAgent)
	}
	return w
}

// finish adds the idempotency key and the signatures.
func (w *headerWriter) finish(keys []signature.Key, id string, at time.Time, body []byte) {
	w.set(webhook.HeaderIdempotencyKey, id)
	if len(keys) > 0 {
		w.sign(keys, id, at, body)
	}
}

// headerWriter sets headers whose values share one allocation.
type headerWriter struct {
	header http.Header
	values []string
}

func (w *headerWriter) set(name, value string) {
	n := len(w.values)
	w.values = append(w.values, value)
	w.header[name] = w.values[n : n+1 : n+1]
}

// setMetadata sets the headers of the selected metadata.
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
			// Names that differ only in case share a header, which has both values.
			h := metaHeader(name)
			if _, taken := w.header[h]; taken {
				w.header[h] = append(w.header[h], encodeValue(value))
			} else {
				w.set(h, encodeValue(value))
			}
		}
	}
}

// setPlain sets a header with a standard syntax. It encodes the value only if it could not be
// sent otherwise, and does nothing if the value is empty.
func (w *headerWriter) setPlain(name, value string) {
	switch {
	case value == "":
	case isPlain(value):
		w.set(name, value)
	default:
		w.set(name, encodeValue(value))
	}
}

const hexDigits = "0123456789abcdef"

// encodeValue encodes a text as a header value, which is printable ASCII without a space at
// either end. url.PathUnescape decodes it.
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

// metaHeader returns the header name of metadata, in the case of http.CanonicalHeaderKey.
func metaHeader(name string) string {
	b := make([]byte, 0, len(webhook.HeaderMetaPrefix)+len(name)+16)
	b = append(b, webhook.HeaderMetaPrefix...)
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

// isPlain reports whether s can be a header value without encoding.
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

// version returns the version of the Waybill module in the running program, if it is known.
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
