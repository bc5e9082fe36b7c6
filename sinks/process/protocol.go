package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// ProtocolVersion is the version of docs/process-protocol.md that is spoken here.
const ProtocolVersion = 1

// The lines that there are.
const (
	lineHello   = "hello"   // both ways, first
	lineDeliver = "deliver" // to the program
	lineCancel  = "cancel"  // to the program
	lineAnswer  = "answer"  // from the program
)

const (
	// Bounds of what is kept of an answer's texts, in bytes.
	maxReceiptBytes = 1 << 10
	maxErrorBytes   = 4 << 10

	// maxThrottle caps what a program can ask for: no typing error may stop a
	// sink for days.
	maxThrottle = time.Hour
)

type helloLine struct {
	Line         string `json:"line"`
	Protocol     string `json:"protocol"`
	Versions     []int  `json:"versions"`
	Sink         string `json:"sink"`
	MaxLineBytes int    `json:"max_line_bytes"`
}

type deliverLine struct {
	Line       string                `json:"line"`
	Delivery   int64                 `json:"delivery"`
	Attempt    int                   `json:"attempt"`
	ID         string                `json:"id"`
	Type       string                `json:"type"`
	Version    int                   `json:"version"`
	Key        string                `json:"key"`
	OccurredOn time.Time             `json:"occurred_on"`
	DeliverAt  *time.Time            `json:"deliver_at,omitempty"`
	Metadata   notification.Metadata `json:"metadata"`
	Base64     bool                  `json:"base64,omitempty"`
	Payload    any                   `json:"payload"`
}

type cancelLine struct {
	Line     string `json:"line"`
	Delivery int64  `json:"delivery"`
}

// encodeHello makes the first line that a program reads.
func encodeHello(sink string, maxLineBytes int) ([]byte, error) {
	return encode(helloLine{
		Line: lineHello, Protocol: "waybill-process", Versions: []int{ProtocolVersion},
		Sink: sink, MaxLineBytes: maxLineBytes,
	})
}

// encodeDelivery makes the line of a delivery. It shares nothing with d.
func encodeDelivery(number int64, d *notification.Delivery) ([]byte, error) {
	l := deliverLine{
		Line: lineDeliver, Delivery: number, Attempt: d.Attempt,
		ID: d.ID, Type: d.Type, Version: d.Version, Key: d.Key, OccurredOn: d.OccurredOn.UTC(),
		Metadata: d.Metadata, Payload: json.RawMessage(d.Payload),
	}
	if l.Metadata == nil {
		l.Metadata = notification.Metadata{}
	}
	if !d.DeliverAt.IsZero() {
		at := d.DeliverAt.UTC()
		l.DeliverAt = &at
	}
	if !holdsJSON(d.Envelope) {
		l.Base64, l.Payload = true, append([]byte{}, d.Payload...) // encoding/json writes []byte as base64
	}
	return encode(l)
}

func encodeCancel(number int64) ([]byte, error) {
	return encode(cancelLine{Line: lineCancel, Delivery: number})
}

// encode writes JSON in one line, with its line end. Characters that only HTML
// minds stay as they are, and so does JSON that is part of v but for the white
// space between its tokens.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// holdsJSON says whether the payload can stand in a line as it is. Without a
// content type it is JSON, as elsewhere; encoding/json takes bytes for valid that
// are not UTF-8, which no other decoder would read.
func holdsJSON(e *notification.Envelope) bool {
	if contentType := e.Metadata.Get(notification.MetadataContentType); contentType != "" {
		media, _, err := mime.ParseMediaType(contentType)
		if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return false
		}
	}
	return utf8.Valid(e.Payload) && json.Valid(e.Payload)
}

// reply is a line of the program.
type reply struct {
	Line string `json:"line"`

	// Of a hello.
	Version int `json:"version"`

	// Of an answer.
	Delivery *int64   `json:"delivery"`
	Outcome  string   `json:"outcome"`
	Receipt  string   `json:"receipt"`
	Until    *string  `json:"until"`
	Seconds  *float64 `json:"seconds"`

	Error string `json:"error"` // of both

	fault error // of an answer: what is wrong with the rest of it

	credentials redact.Credentials // which no text repeats
}

// decodeReply reads a line of the program. An error means that the protocol is
// broken: it cannot be told what the line is about. An answer whose delivery is
// known may still have a fault. No text that comes of it repeats a credential.
func decodeReply(line []byte, credentials redact.Credentials) (*reply, error) {
	r := &reply{credentials: credentials}
	err := json.Unmarshal(line, r)
	var field *json.UnmarshalTypeError
	switch {
	case errors.As(err, &field) && r.Line == lineAnswer && r.Delivery != nil && field.Field != "delivery":
		r.fault = fmt.Errorf("%w: %s is a %s", ErrAnswer, field.Field, field.Value)
	case err != nil:
		return nil, fmt.Errorf("%w: %q on stdout is not a line of it (%w); what is for people belongs on stderr", ErrProtocol, excerpt(line, credentials), err)
	}
	switch {
	case r.Line == lineHello:
	case r.Line != lineAnswer:
		return nil, fmt.Errorf("%w: %q on stdout has the line %q, which is neither hello nor answer", ErrProtocol, excerpt(line, credentials), r.clean(r.Line, 64))
	case r.Delivery == nil:
		return nil, fmt.Errorf("%w: the answer %q names no delivery", ErrProtocol, excerpt(line, credentials))
	}
	return r, nil
}

// checkHello says what is wrong with the first line of a program.
func (r *reply) checkHello() error {
	switch {
	case r.Line != lineHello:
		return fmt.Errorf("%w: its first line is %s and not hello", ErrProtocol, r.Line)
	case r.Error != "":
		return fmt.Errorf("%w: it refuses: %s", ErrProtocol, r.clean(r.Error, maxErrorBytes))
	case r.Version != ProtocolVersion:
		return fmt.Errorf("%w: it speaks version %d, and this sink only %d", ErrProtocol, r.Version, ProtocolVersion)
	}
	return nil
}

// result is what an answer means for its delivery.
func (r *reply) result(now time.Time) (notification.Receipt, error) {
	if r.fault != nil {
		return "", sinks.Transient(r.fault)
	}
	cause := errors.New("the program gives no reason")
	if text := r.clean(r.Error, maxErrorBytes); text != "" {
		cause = errors.New(text)
	}
	switch r.Outcome {
	case "ok":
		return notification.Receipt(r.clean(r.Receipt, maxReceiptBytes)), nil
	case "transient":
		return "", sinks.Transient(cause)
	case "unavailable":
		return "", sinks.Unavailable(cause)
	case "permanent":
		return "", sinks.Permanent(cause)
	case "unknown":
		return "", sinks.Unknown(cause)
	case "throttled":
		until, err := r.throttledUntil(now)
		switch {
		case err != nil:
			return "", sinks.Transient(fmt.Errorf("%w: %w", err, cause))
		case !until.After(now):
			return "", sinks.Transient(cause) // the time is over already
		}
		return "", sinks.Throttled(until, cause)
	}
	return "", sinks.Transient(fmt.Errorf("%w: the outcome %q is none of ok, transient, throttled, unavailable, permanent, unknown",
		ErrAnswer, r.clean(r.Outcome, 64)))
}

func (r *reply) throttledUntil(now time.Time) (time.Time, error) {
	limit := now.Add(maxThrottle)
	switch {
	case (r.Until == nil) == (r.Seconds == nil):
		return time.Time{}, fmt.Errorf("%w: throttled needs either until or seconds", ErrAnswer)
	case r.Seconds != nil:
		seconds := math.Max(0, math.Min(*r.Seconds, maxThrottle.Seconds()))
		return now.Add(time.Duration(seconds * float64(time.Second))), nil
	}
	until, err := time.Parse(time.RFC3339, *r.Until)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%w: until is %q and not a time like %s", ErrAnswer, r.clean(*r.Until, 64), "2026-01-02T15:04:05Z")
	case until.After(limit):
		return limit, nil
	}
	return until, nil
}

// clean is a text of the reply without credentials, bounded and fit for logs.
func (r *reply) clean(text string, limit int) string { return clean(r.credentials.Text(text), limit) }

// clean bounds a text of the program and makes it fit for logs and databases:
// valid UTF-8, no control characters but line ends and tabs.
func clean(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit] + "…"
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.TrimSpace(text)
}

// excerpt is enough of a line to find where it comes from.
func excerpt(line []byte, credentials redact.Credentials) string {
	return clean(credentials.Text(string(line[:min(len(line), maxLogLine)])), 120)
}
