// Package webhook receives requests of a signed http sink, and those of other senders that keep to Standard
// Webhooks.
package webhook

import (
	"cmp"
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
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// DefaultMaxRequestBytes is the default of Receiver.MaxBytes: 2 MiB. That is enough for the
// largest payload that can be published by default, 1 MiB, in base64.
const DefaultMaxRequestBytes = 2 << 20

const (
	// signatureAge is the largest difference between the time of a request and that of the
	// receiver, as in the libraries of Standard Webhooks.
	signatureAge = 5 * time.Minute
	// maxSignatures is how many signatures of a request are checked: a sender makes one for
	// each secret. It limits the work for a forged request.
	maxSignatures = 32
)

// Receiver verifies and reads the requests of a signed http sink. It is for receivers that are
// written in Go; others verify with a library of Standard Webhooks and read the JSON. Its
// methods are safe for concurrent use.
type Receiver struct {
	// Secrets are the receiver's secrets, at least one: "whsec_" or plain base64, or "whpk_"
	// with an ed25519 public key. A request must be signed with one of them.
	Secrets []string
	// MaxBytes is the largest body; 0 means [DefaultMaxRequestBytes].
	MaxBytes int64
	// Sink is the sink's name in the deliveries that [Receive] makes, under which an inbox
	// records their ids. The default is "webhook".
	Sink string
	// Logger logs what [Receive] and [Receiver.Verify] refuse; nil means no log.
	Logger *slog.Logger
}

// Envelope verifies and reads a request like [Receiver.Envelope], with these secrets.
func Envelope(r *http.Request, secrets ...string) (*notification.Envelope, error) {
	return Receiver{Secrets: secrets}.Envelope(r)
}

// Envelope verifies a request in the format envelope, and returns what was published,
// except metadata that the sink does not send. It reads the body.
//
// The error wraps [ErrSignature] if the request is not signed by the sender or is older than
// five minutes; answer with 401. It wraps [*http.MaxBytesError] if the body is too large;
// answer with 413. It wraps [ErrEnvelope] if the request is signed but is not an envelope;
// answer with 422. Other errors are those of an invalid secret and of reading the body.
//
// A request can come twice, so remember the ids.
func (v Receiver) Envelope(r *http.Request) (*notification.Envelope, error) {
	id, body, err := v.open(nil, r)
	if err != nil {
		return nil, err
	}
	m, err := parse(id, body)
	if err != nil {
		return nil, err
	}
	return envelopeOf(&m.Message)
}

// Collection verifies and reads a request like [Receiver.Collection], with these secrets.
func Collection(r *http.Request, secrets ...string) (*sinks.Collection, error) {
	return Receiver{Secrets: secrets}.Collection(r)
}

// Collection verifies and reads a request with a collection in the format envelope, which an http
// sink with the setting collect sends. Its errors are those of [Receiver.Envelope]. A collection may
// be larger than a notification: see Receiver.MaxBytes.
//
// A request can come twice, so remember the ids of collections: a repeat has the same id and the same
// members. The attempt comes from a header that is not signed.
func (v Receiver) Collection(r *http.Request) (*sinks.Collection, error) {
	id, body, err := v.open(nil, r)
	if err != nil {
		return nil, err
	}
	m, err := parse(id, body)
	if err != nil {
		return nil, err
	}
	return v.collection(r, m)
}

// message is the body of a request: an envelope, or a collection with items.
type message struct {
	envelope.Message
	Group string              `json:"group"`
	Items []*envelope.Message `json:"items"`
}

// parse parses the body of a request with the signed id.
func parse(id string, body []byte) (*message, error) {
	m := new(message)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	// A payload in another format, signed with the same secret, could look like an envelope.
	// But its author does not know the id that is signed.
	if m.ID != id {
		return nil, fmt.Errorf("%w: its id %q is not the signed id %q", ErrEnvelope, m.ID, id)
	}
	return m, nil
}

func envelopeOf(m *envelope.Message) (*notification.Envelope, error) {
	e, err := m.Envelope()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	return e, nil
}

// delivery returns an envelope as a delivery to the receiver's sink.
func (v Receiver) delivery(r *http.Request, e *notification.Envelope) *notification.Delivery {
	return &notification.Delivery{Envelope: e, Sink: cmp.Or(v.Sink, "webhook"), Attempt: attemptOf(r)}
}

func (v Receiver) collection(r *http.Request, m *message) (*sinks.Collection, error) {
	if len(m.Items) == 0 || m.Group == "" {
		return nil, fmt.Errorf("%w: it is not a collection with group and items", ErrEnvelope)
	}
	c := &sinks.Collection{ID: m.ID, Group: m.Group}
	for _, item := range m.Items {
		if item == nil {
			return nil, fmt.Errorf("%w: an item is null", ErrEnvelope)
		}
		e, err := envelopeOf(item)
		if err != nil {
			return nil, err
		}
		c.Members = append(c.Members, v.delivery(r, e))
	}
	c.Sink, c.Attempt = c.Members[0].Sink, c.Members[0].Attempt
	return c, nil
}

// open verifies a request, and returns its signed parts: the notification's id and the body.
func (v Receiver) open(w http.ResponseWriter, r *http.Request) (id string, body []byte, err error) {
	verifiers, err := v.verifiers()
	if err != nil {
		return "", nil, err
	}
	webhookID, timestamp := r.Header.Get(HeaderWebhookID), r.Header.Get(HeaderWebhookTimestamp)
	if strings.Contains(webhookID, ".") {
		// Dots separate the signed parts, and the sink encodes them in ids. With a dot in the
		// id, a part of the id could be taken for the time, and the time for a part of the body.
		return "", nil, fmt.Errorf("%w: %s contains a dot", ErrSignature, HeaderWebhookID)
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

// checkAge refuses old requests, which may be replayed.
func checkAge(timestamp string) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || timestamp[0] < '0' || timestamp[0] > '9' {
		return fmt.Errorf("%w: %s is not a time", ErrSignature, HeaderWebhookTimestamp)
	}
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > signatureAge {
		return fmt.Errorf("%w: its time is %s away, more than %s", ErrSignature, age.Abs().Truncate(time.Second), signatureAge)
	}
	return nil
}

// verifier reports whether one of the signatures was made with its secret.
type verifier func(signatures []string, head, body []byte) bool

func (v Receiver) verifiers() ([]verifier, error) {
	if len(v.Secrets) == 0 {
		return nil, errors.New("a receiver needs at least one secret")
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
	if text, ok := strings.CutPrefix(secret, signature.PublicKeyPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("is not base64 of %d bytes after %s", ed25519.PublicKeySize, signature.PublicKeyPrefix)
		}
		return verifyPublic(raw), nil
	}
	k, err := signature.Parse(secret)
	if err != nil {
		return nil, err
	}
	if signature.IsPrivate(k) {
		return nil, fmt.Errorf("is the sender's private key; verify with the public key, which begins with %s", signature.PublicKeyPrefix)
	}
	return verifySymmetric(k), nil
}

func verifySymmetric(k signature.Key) verifier {
	return func(signatures []string, head, body []byte) bool {
		want := k.AppendSignature(nil, head, body)
		for _, given := range signatures {
			if hmac.Equal([]byte(given), want) {
				return true
			}
		}
		return false
	}
}

func verifyPublic(public ed25519.PublicKey) verifier {
	return func(signatures []string, head, body []byte) bool {
		content := append(head[:len(head):len(head)], body...)
		for _, given := range signatures {
			text, ok := strings.CutPrefix(given, "v1a,")
			raw, err := base64.StdEncoding.DecodeString(text)
			if ok && err == nil && ed25519.Verify(public, content, raw) {
				return true
			}
		}
		return false
	}
}
