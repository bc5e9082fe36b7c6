// Package signature has the keys of Standard Webhooks 1.0.0, with which the http sink signs requests and a
// receiver verifies them.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// Prefixes of keys in Standard Webhooks 1.0.0, "Signature scheme".
const (
	SecretPrefix     = "whsec_" // a symmetric secret for v1; may be left out
	PrivateKeyPrefix = "whsk_"  // the sender's ed25519 key for v1a
	PublicKeyPrefix  = "whpk_"  // the receiver's ed25519 key for v1a
)

// Lengths of a symmetric key in bytes, from the same section.
const (
	minKeyLength = 24
	maxKeyLength = 64
)

// Key makes the signatures of one secret. It is safe for concurrent use.
type Key interface {
	// AppendSignature appends the signature of head and body, with its version.
	AppendSignature(to, head, body []byte) []byte
}

// symmetric signs with HMAC-SHA256, as "v1".
type symmetric struct {
	states sync.Pool // of *signing, because making an HMAC costs as much as a short body
}

type signing struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// NewSymmetric makes the key of a shared secret.
func NewSymmetric(secret []byte) *symmetric {
	k := new(symmetric)
	k.states.New = func() any { return &signing{mac: hmac.New(sha256.New, secret)} }
	return k
}

// AppendSignature implements [Key].
func (k *symmetric) AppendSignature(to, head, body []byte) []byte {
	st := k.states.Get().(*signing)
	defer k.states.Put(st)
	st.mac.Reset()
	st.mac.Write(head) // a hash never fails
	st.mac.Write(body)
	return base64.StdEncoding.AppendEncode(append(to, "v1,"...), st.mac.Sum(st.sum[:0]))
}

// asymmetric signs with ed25519, as "v1a".
type asymmetric struct{ private ed25519.PrivateKey }

// AppendSignature implements [Key].
func (k asymmetric) AppendSignature(to, head, body []byte) []byte {
	content := append(bytes.Clone(head), body...) // ed25519.Sign needs it in one piece
	return base64.StdEncoding.AppendEncode(append(to, "v1a,"...), ed25519.Sign(k.private, content))
}

// Parse decodes a signing secret as Standard Webhooks libraries do. Its
// errors do not quote the secret.
func Parse(secret string) (Key, error) {
	switch {
	case strings.HasPrefix(secret, PublicKeyPrefix):
		return nil, fmt.Errorf("is a public key, which is the receiver's; sign with the secret key, which begins with %s", PrivateKeyPrefix)
	case strings.HasPrefix(secret, PrivateKeyPrefix):
		return parsePrivateKey(strings.TrimPrefix(secret, PrivateKeyPrefix))
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
	if err != nil {
		return nil, fmt.Errorf("is not base64; make one with: echo %s$(openssl rand -base64 32)", SecretPrefix)
	}
	if len(raw) < minKeyLength || len(raw) > maxKeyLength {
		return nil, fmt.Errorf("is %d bytes long once decoded, outside %d..%d; make one with: echo %s$(openssl rand -base64 32)",
			len(raw), minKeyLength, maxKeyLength, SecretPrefix)
	}
	return NewSymmetric(raw), nil
}

// parsePrivateKey parses the two usual forms of an ed25519 key: the private key of RFC 8032, which
// crypto/ed25519 calls the seed, and the seed followed by the public key.
func parsePrivateKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not base64 after %s", PrivateKeyPrefix)
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

// Credential returns the part of a secret that errors must not repeat.
func Credential(secret string) string {
	return strings.TrimPrefix(strings.TrimPrefix(secret, SecretPrefix), PrivateKeyPrefix)
}

// IsPrivate reports whether a key signs, and cannot verify.
func IsPrivate(k Key) bool {
	_, private := k.(asymmetric)
	return private
}
