package httpsink

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// DefaultMaxRequestBytes is how large a body a [Receiver] reads unless it is told
// otherwise: 2 MiB, so that the largest payload that is published by default, of 1 MiB,
// fits in base64 with all that is beside it.
const DefaultMaxRequestBytes = 2 << 20

const (
	// signatureAge is how far a request's time may lie from the receiver's, as in
	// the libraries of Standard Webhooks.
	signatureAge = 5 * time.Minute
	// maxSignatures is how many of a request are looked at: one for each secret of
	// the sender. It bounds what a forger can have computed.
	maxSignatures = 32
)

// Receiver takes requests of a signed http sink apart, at the other end. It is for
// receivers that are written in Go; others verify with a library of Standard
// Webhooks and read the JSON. Its methods may be called in parallel.
//
// The receiver says in which format requests come, and not the request: its headers
// are not signed, so whoever replays it could choose how it is read.
type Receiver struct {
	// Secrets are those that the receiver was given, one at least: "whsec_" or plain
	// base64, and "whpk_" with an ed25519 public key. One of them must have signed.
	Secrets []string
	// MaxBytes is how large a body may be; 0 means [DefaultMaxRequestBytes].
	MaxBytes int64
	// Sink is the sink's name in the deliveries that [Receive] makes, under which an inbox
	// notes their ids; default "webhook".
	Sink string
	// Logger is for what [Receive] and [Receiver.Verify] refuse; nil for none.
	Logger *slog.Logger
}

// Envelope reads a request in the format [FormatEnvelope], as a [Receiver] with these
// secrets does.
func Envelope(r *http.Request, secrets ...string) (*notification.Envelope, error) {
	return Receiver{Secrets: secrets}.Envelope(r)
}

// Envelope verifies a request in the format [FormatEnvelope] and returns what was
// published, but for metadata that the sink does not send. The body is read.
//
// The error is [ErrSignature] for a request of somebody else, or one that is older
// than five minutes, which should be answered with 401; [*http.MaxBytesError] for
// a body that is too large, 413; [ErrEnvelope] for one that is signed but no envelope,
// 422. Else a secret is none, or the body could not be read.
//
// A request can come twice. Remember the ids.
func (v Receiver) Envelope(r *http.Request) (*notification.Envelope, error) {
	return v.envelope(nil, r)
}

// envelope is Envelope, for a server that is to close the connection behind a body that
// is too large.
func (v Receiver) envelope(w http.ResponseWriter, r *http.Request) (*notification.Envelope, error) {
	id, body, err := v.open(w, r)
	if err != nil {
		return nil, err
	}
	var m struct {
		ID            string                `json:"id"`
		Type          string                `json:"type"`
		Version       int                   `json:"version"`
		Key           string                `json:"key"`
		OccurredOn    time.Time             `json:"occurred_on"`
		Metadata      notification.Metadata `json:"metadata"`
		Payload       json.RawMessage       `json:"payload"`
		PayloadBase64 []byte                `json:"payload_base64"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	// A payload in another format, signed with the same secret, might look like an
	// envelope. Its author did not know the id.
	if m.ID != id {
		return nil, fmt.Errorf("%w: its id %q is not that of the signature, %q", ErrEnvelope, m.ID, id)
	}
	payload := []byte(m.Payload)
	if m.PayloadBase64 != nil {
		payload = m.PayloadBase64
	}
	return valid(&notification.Envelope{
		ID: m.ID, Type: m.Type, Version: m.Version, Key: m.Key, OccurredOn: m.OccurredOn.UTC(), Metadata: m.Metadata, Payload: payload,
	})
}

// EnvelopeFromHeaders verifies a request in the format [FormatJSON] and returns what
// was published, but for metadata that the sink does not send; names of metadata
// are in lower case. The errors are those of [Receiver.Envelope].
//
// Only id and payload are signed. Whoever can read a request can send it again with
// other headers within five minutes, and so with another type, version, key, time and
// metadata: believe the id and the payload only, or use [FormatEnvelope].
func (v Receiver) EnvelopeFromHeaders(r *http.Request) (*notification.Envelope, error) {
	id, body, err := v.open(nil, r)
	if err != nil {
		return nil, err
	}
	h := headerReader{header: r.Header}
	e := &notification.Envelope{ID: id, Type: h.text(HeaderType), Key: h.text(HeaderKey), Metadata: h.metadata(), Payload: body}
	e.Version, err = strconv.Atoi(r.Header.Get(HeaderVersion))
	h.note(HeaderVersion, err)
	if text := r.Header.Get(HeaderOccurredOn); text != "" {
		e.OccurredOn, err = time.Parse(time.RFC3339Nano, text)
		h.note(HeaderOccurredOn, err)
	}
	if h.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, h.err)
	}
	return valid(e)
}

func valid(e *notification.Envelope) (*notification.Envelope, error) {
	if err := e.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	return e, nil
}

// open verifies a request and returns what is signed of it: the notification's id,
// and the body.
func (v Receiver) open(w http.ResponseWriter, r *http.Request) (id string, body []byte, err error) {
	verifiers, err := v.verifiers()
	if err != nil {
		return "", nil, err
	}
	webhookID, timestamp := r.Header.Get(HeaderWebhookID), r.Header.Get(HeaderWebhookTimestamp)
	if strings.Contains(webhookID, ".") {
		// Dots part what is signed, and the sink writes none into an id: with one, a part of
		// the id could be taken for the time, and the time for a part of the body.
		return "", nil, fmt.Errorf("%w: there is a dot in %s", ErrSignature, HeaderWebhookID)
	}
	if err := checkAge(timestamp); err != nil {
		return "", nil, err
	}
	limit := v.MaxBytes
	if limit == 0 {
		limit = DefaultMaxRequestBytes
	}
	if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		return "", nil, fmt.Errorf("read the body: %w", err)
	}
	signatures := strings.SplitN(r.Header.Get(HeaderWebhookSignature), " ", maxSignatures+1)
	head := []byte(webhookID + "." + timestamp + ".")
	for _, verify := range verifiers {
		if verify(signatures[:min(len(signatures), maxSignatures)], head, body) {
			if id, err = url.PathUnescape(webhookID); err != nil {
				return "", nil, fmt.Errorf("%w: its id: %w", ErrEnvelope, err)
			}
			return id, body, nil
		}
	}
	return "", nil, fmt.Errorf("%w: no signature matches", ErrSignature)
}

// checkAge keeps old requests from being sent once more.
func checkAge(timestamp string) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || timestamp[0] < '0' || timestamp[0] > '9' {
		return fmt.Errorf("%w: there is no time in %s", ErrSignature, HeaderWebhookTimestamp)
	}
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > signatureAge {
		return fmt.Errorf("%w: its time is %s away, more than %s", ErrSignature, age.Abs().Truncate(time.Second), signatureAge)
	}
	return nil
}

// verifier reports whether one of the signatures is that of its secret.
type verifier func(signatures []string, head, body []byte) bool

func (v Receiver) verifiers() ([]verifier, error) {
	if len(v.Secrets) == 0 {
		return nil, errors.New("no secret is given to verify requests with")
	}
	verifiers := make([]verifier, len(v.Secrets))
	for i, secret := range v.Secrets {
		var err error
		if verifiers[i], err = newVerifier(secret); err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
	}
	return verifiers, nil
}

func newVerifier(secret string) (verifier, error) {
	if text, ok := strings.CutPrefix(secret, publicKeyPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("is not base64 of %d bytes after %s", ed25519.PublicKeySize, publicKeyPrefix)
		}
		return verifyPublic(raw), nil
	}
	k, err := parseSecret(secret)
	if err != nil {
		return nil, err
	}
	if _, private := k.(asymmetric); private {
		return nil, fmt.Errorf("is the sender's; verify with the public key, which begins with %s", publicKeyPrefix)
	}
	return verifySymmetric(k), nil
}

func verifySymmetric(k key) verifier {
	return func(signatures []string, head, body []byte) bool {
		want := k.appendSignature(nil, head, body)
		for _, signature := range signatures {
			if hmac.Equal([]byte(signature), want) {
				return true
			}
		}
		return false
	}
}

func verifyPublic(public ed25519.PublicKey) verifier {
	return func(signatures []string, head, body []byte) bool {
		content := append(head[:len(head):len(head)], body...)
		for _, signature := range signatures {
			text, ok := strings.CutPrefix(signature, "v1a,")
			raw, err := base64.StdEncoding.DecodeString(text)
			if ok && err == nil && ed25519.Verify(public, content, raw) {
				return true
			}
		}
		return false
	}
}

// headerReader reads the headers of the format json. It keeps the first error.
type headerReader struct {
	header http.Header
	err    error
}

func (h *headerReader) note(name string, err error) {
	if err != nil && h.err == nil {
		h.err = fmt.Errorf("header %s: %w", name, err)
	}
}

func (h *headerReader) text(name string) string {
	text, err := url.PathUnescape(h.header.Get(name))
	h.note(name, err)
	return text
}

// metadata has in lower case what had no case on the way: what is percent-encoded
// in a name kept its own.
func (h *headerReader) metadata() notification.Metadata {
	m := make(notification.Metadata)
	for name := range h.header {
		if meta, ok := strings.CutPrefix(name, HeaderMetaPrefix); ok {
			meta, err := url.PathUnescape(strings.ToLower(meta))
			h.note(name, err)
			m[meta] = h.text(name)
		}
	}
	for name, header := range map[string]string{
		notification.MetadataContentType: headerContentType,
		notification.MetadataTraceparent: headerTraceparent,
		notification.MetadataTracestate:  headerTracestate,
	} {
		if value := h.header.Get(header); value != "" {
			m[name] = value
		}
	}
	return m
}
