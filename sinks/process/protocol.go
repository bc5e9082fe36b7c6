package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// ProtocolVersion is the version of docs/process-protocol.md that the sink speaks.
const ProtocolVersion = 1

// Kinds of lines.
const (
	lineHello      = "hello"      // the first line in each direction
	lineDeliver    = "deliver"    // to the program
	lineCollection = "collection" // to the program, if its hello says that it takes them
	lineCancel     = "cancel"     // to the program
	lineAnswer     = "answer"     // from the program
)

const (
	// Texts of an answer are cut off after this many bytes.
	maxReceiptBytes = 1 << 10
	maxErrorBytes   = 4 << 10

	// maxThrottle limits how long a program can throttle the sink, so that a mistake in the
	// program does not stop the sink for days.
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
	Line     string `json:"line"`
	Delivery int64  `json:"delivery"`
	Attempt  int    `json:"attempt"`
	item
}

type collectionLine struct {
	Line     string `json:"line"`
	Delivery int64  `json:"delivery"`
	Attempt  int    `json:"attempt"`
	ID       string `json:"id"`
	Group    string `json:"group"`
	Items    []item `json:"items"`
}

// item is a notification in a line.
type item struct {
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

// encodeDelivery makes the line of a delivery. The line shares no memory with d.
func encodeDelivery(number int64, d *notification.Delivery) ([]byte, error) {
	return encode(deliverLine{lineDeliver, number, d.Attempt, itemOf(d.Envelope)})
}

// encodeCollection makes the line of a collection. The line shares no memory with c.
func encodeCollection(number int64, c *sinks.Collection) ([]byte, error) {
	l := collectionLine{lineCollection, number, c.Attempt, c.ID, c.Group, make([]item, len(c.Members))}
	for i, d := range c.Members {
		l.Items[i] = itemOf(d.Envelope)
	}
	return encode(l)
}

func itemOf(e *notification.Envelope) item {
	i := item{
		ID: e.ID, Type: e.Type, Version: e.Version, Key: e.Key, OccurredOn: e.OccurredOn.UTC(),
		Metadata: e.Metadata, Payload: json.RawMessage(e.Payload),
	}
	if i.Metadata == nil {
		i.Metadata = notification.Metadata{}
	}
	if !e.DeliverAt.IsZero() {
		at := e.DeliverAt.UTC()
		i.DeliverAt = &at
	}
	if !isJSON(e) {
		i.Base64, i.Payload = true, append([]byte{}, e.Payload...) // encoding/json writes []byte as base64
	}
	return i
}

func encodeCancel(number int64) ([]byte, error) {
	return encode(cancelLine{Line: lineCancel, Delivery: number})
}

// encode returns v as JSON in one line, with a line end. It does not escape characters for
// HTML. It changes raw JSON in v only by removing white space between tokens.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// isJSON reports whether the payload can be a JSON value in a line. A payload without a
// content type counts as JSON, as elsewhere. The payload must also be UTF-8: encoding/json
// accepts other bytes, but other decoders do not.
func isJSON(e *notification.Envelope) bool {
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

	// In a hello.
	Version     int  `json:"version"`
	Collections bool `json:"collections"`

	// In an answer.
	Delivery *int64   `json:"delivery"`
	Outcome  string   `json:"outcome"`
	Receipt  string   `json:"receipt"`
	Until    *string  `json:"until"`
	Seconds  *float64 `json:"seconds"`

	Error string `json:"error"` // in both

	fault error // what is wrong with an answer that names its delivery

	credentials redact.Credentials // removed from all texts
}

// decodeReply decodes a line of the program. An error means that the line breaks the protocol.
// An answer that names its delivery but is otherwise invalid gives no error but has a fault.
func decodeReply(line []byte, credentials redact.Credentials) (*reply, error) {
	r := &reply{credentials: credentials}
	err := json.Unmarshal(line, r)
	var field *json.UnmarshalTypeError
	switch {
	case errors.As(err, &field) && r.Line == lineAnswer && r.Delivery != nil && field.Field != "delivery":
		r.fault = fmt.Errorf("%w: %s is a %s", ErrAnswer, field.Field, field.Value)
	case err != nil:
		return nil, wrote(fmt.Errorf("%w: a line on stdout is not one of the protocol (%w); write logs to stderr", ErrProtocol, err), line, credentials)
	}
	switch {
	case r.Line == lineHello:
	case r.Line != lineAnswer:
		return nil, wrote(fmt.Errorf("%w: on stdout, line is neither hello nor answer", ErrProtocol), line, credentials)
	case r.Delivery == nil:
		return nil, wrote(fmt.Errorf("%w: an answer names no delivery", ErrProtocol), line, credentials)
	}
	return r, nil
}

// checkHello returns an error if the first line of a program is not a hello of this version.
func (r *reply) checkHello() error {
	switch {
	case r.Line != lineHello:
		return fmt.Errorf("%w: its first line is %s, not hello", ErrProtocol, r.Line)
	case r.Error != "":
		return fmt.Errorf("%w: its hello has the error: %s", ErrProtocol, r.clean(r.Error, maxErrorBytes))
	case r.Version != ProtocolVersion:
		return fmt.Errorf("%w: it speaks version %d, this sink speaks only version %d", ErrProtocol, r.Version, ProtocolVersion)
	}
	return nil
}

// result returns the receipt or the error that an answer means.
func (r *reply) result(now time.Time) (notification.Receipt, error) {
	if r.fault != nil {
		return "", sinks.Transient(r.fault)
	}
	cause := errors.New("the program gives no reason")
	if text := r.clean(r.Error, maxErrorBytes); text != "" {
		cause = sinks.WithAnswer(errReason, text)
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
	case "invalid":
		return "", sinks.Invalid(cause)
	case "unknown":
		return "", sinks.Unknown(cause)
	case "throttled":
		until, err := r.throttledUntil(now)
		switch {
		case err != nil:
			return "", sinks.Transient(fmt.Errorf("%w: %w", err, cause))
		case !until.After(now):
			return "", sinks.Transient(cause) // the time has passed
		}
		return "", sinks.Throttled(until, cause)
	}
	unknown := fmt.Errorf("%w: the outcome is not ok, transient, throttled, unavailable, permanent, invalid or unknown", ErrAnswer)
	return "", sinks.Transient(sinks.WithAnswer(unknown, strconv.Quote(r.clean(r.Outcome, 64))))
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
		wrong := fmt.Errorf("%w: until is not a time such as %s", ErrAnswer, "2026-01-02T15:04:05Z")
		return time.Time{}, sinks.WithAnswer(wrong, strconv.Quote(r.clean(*r.Until, 64)))
	case until.After(limit):
		return limit, nil
	}
	return until, nil
}

// clean removes credentials from a text of the reply, and cleans it for logs and databases.
func (r *reply) clean(text string, limit int) string { return clean(r.credentials.Text(text), limit) }

// clean makes a text of the program safe for logs and databases: at most limit bytes and an
// ellipsis, valid UTF-8, and no control characters except line ends and tabs.
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

// wrote adds the beginning of a line to an error, enough to find where it comes from. It may repeat a notification, so
// it is the answer.
func wrote(err error, line []byte, credentials redact.Credentials) error {
	return sinks.WithAnswer(err, strconv.Quote(clean(credentials.Text(string(line[:min(len(line), maxLogLine)])), 120)))
}
