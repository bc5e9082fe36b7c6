package httpsink

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Prefixes of keys in Standard Webhooks 1.0.0, "Signature scheme".
const (
	secretPrefix     = "whsec_" // a symmetric secret for v1; may be left out
	privateKeyPrefix = "whsk_"  // the sender's ed25519 key for v1a
	publicKeyPrefix  = "whpk_"  // the receiver's ed25519 key for v1a
)

// Lengths of a symmetric key in bytes, from the same section.
const (
	minKeyLength = 24
	maxKeyLength = 64
)

// key makes the signatures of one secret. It is safe for concurrent use.
type key interface {
	// appendSignature appends the signature of head and body, with its version.
	appendSignature(to, head, body []byte) []byte
}

// signer signs requests as Standard Webhooks 1.0.0 says, with each of its keys. So a receiver
// can change its secret, and know either the old or the new one.
type signer struct {
	keys    []key
	masters []master // from which the keys of each receiver are derived
}

// signs reports whether the signer has keys.
func (s *signer) signs() bool { return len(s.keys)+len(s.masters) > 0 }

// keysFor returns the keys for requests to one receiver.
func (s *signer) keysFor(to *url.URL) []key {
	keys := slices.Clip(s.keys)
	for _, m := range s.masters {
		keys = append(keys, newSymmetric(m.derive(to)))
	}
	return keys
}

// sign adds the three headers of the standard. The signed content is
// "id.timestamp.body".
func (s *signer) sign(w *headerWriter, to *url.URL, id string, at time.Time, body []byte) {
	id = strings.ReplaceAll(id, ".", "%2e")
	timestamp := strconv.FormatInt(at.Unix(), 10)
	head := make([]byte, 0, len(id)+len(timestamp)+2)
	head = append(append(append(append(head, id...), '.'), timestamp...), '.')
	var signatures []byte
	for i, k := range s.keysFor(to) {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = k.appendSignature(signatures, head, body)
	}
	w.set(HeaderWebhookID, id)
	w.set(HeaderWebhookTimestamp, timestamp)
	w.set(HeaderWebhookSignature, string(signatures))
}

// symmetric signs with HMAC-SHA256, as "v1".
type symmetric struct {
	states sync.Pool // of *signing, because making an HMAC costs as much as a short body
}

type signing struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

func newSymmetric(secret []byte) *symmetric {
	k := new(symmetric)
	k.states.New = func() any { return &signing{mac: hmac.New(sha256.New, secret)} }
	return k
}

func (k *symmetric) appendSignature(to, head, body []byte) []byte {
	st := k.states.Get().(*signing)
	defer k.states.Put(st)
	st.mac.Reset()
	st.mac.Write(head) // a hash never fails
	st.mac.Write(body)
	return base64.StdEncoding.AppendEncode(append(to, "v1,"...), st.mac.Sum(st.sum[:0]))
}

// asymmetric signs with ed25519, as "v1a".
type asymmetric struct{ private ed25519.PrivateKey }

func (k asymmetric) appendSignature(to, head, body []byte) []byte {
	content := append(bytes.Clone(head), body...) // ed25519.Sign needs it in one piece
	return base64.StdEncoding.AppendEncode(append(to, "v1a,"...), ed25519.Sign(k.private, content))
}

// parseSecret decodes a signing secret as Standard Webhooks libraries do. Its
// errors do not quote the secret.
func parseSecret(secret string) (key, error) {
	switch {
	case strings.HasPrefix(secret, publicKeyPrefix):
		return nil, fmt.Errorf("is a public key, which is the receiver's; sign with the secret key, which begins with %s", privateKeyPrefix)
	case strings.HasPrefix(secret, privateKeyPrefix):
		return parsePrivateKey(strings.TrimPrefix(secret, privateKeyPrefix))
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return nil, fmt.Errorf("is not base64; make one with: echo %s$(openssl rand -base64 32)", secretPrefix)
	}
	if len(raw) < minKeyLength || len(raw) > maxKeyLength {
		return nil, fmt.Errorf("is %d bytes long once decoded, outside %d..%d; make one with: echo %s$(openssl rand -base64 32)",
			len(raw), minKeyLength, maxKeyLength, secretPrefix)
	}
	return newSymmetric(raw), nil
}

// parsePrivateKey parses the two usual forms of an ed25519 key: the private key of RFC 8032, which
// crypto/ed25519 calls the seed, and the seed followed by the public key.
func parsePrivateKey(text string) (key, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not base64 after %s", privateKeyPrefix)
	case len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize:
		return nil, fmt.Errorf("is %d bytes long once decoded; an ed25519 key has %d, or %d with its public key",
			len(raw), ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if len(raw) == ed25519.PrivateKeySize && !bytes.Equal(private, raw) {
		return nil, errors.New("contains a public key that does not belong to the secret key")
	}
	return asymmetric{private}, nil
}

// secretCredential returns the part of a secret that errors must not repeat.
func secretCredential(secret string) string {
	return strings.TrimPrefix(strings.TrimPrefix(secret, secretPrefix), privateKeyPrefix)
}
