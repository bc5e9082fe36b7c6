package webhooks

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrKey means that the secrets of an endpoint cannot be decrypted, because a key is missing.
var ErrKey = errors.New("the secrets of an endpoint cannot be decrypted")

// private is what the database keeps of an endpoint's secrets.
type private struct {
	Secrets []signing         `json:"secrets"`
	Headers map[string]string `json:"headers,omitempty"`
}

// signing is a signing secret, and until when it signs; zero is without end.
type signing struct {
	Secret string    `json:"secret"`
	Until  time.Time `json:"until,omitzero"`
}

// sealed begins the text of an encrypted value. The digest of the key follows, and after a colon the
// base64 of nonce and encrypted text.
const sealed = "aes256gcm:"

// keyLength is that of AES-256, in bytes.
const keyLength = 32

// vault encrypts with AES-256-GCM and a random nonce (NIST SP 800-38D): 2^32 values for each key.
type vault struct {
	first string                 // the digest of the key that encrypts; "" encrypts nothing
	keys  map[string]cipher.AEAD // by the digest
}

func newVault(keys []string) (*vault, error) {
	v := &vault{keys: make(map[string]cipher.AEAD, len(keys))}
	for i, text := range keys {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != keyLength {
			return nil, fmt.Errorf("encryption_keys[%d]: is not base64 of %d bytes; make one with: openssl rand -base64 %d", i, keyLength, keyLength)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(key)
		digest := hex.EncodeToString(sum[:4])
		if v.keys[digest] = aead; v.first == "" {
			v.first = digest
		}
	}
	return v, nil
}

// seal returns the text for the database. The endpoint's id is authenticated with it, so that the text of
// one endpoint is worth nothing in the row of another.
func (v *vault) seal(endpoint string, p private) (string, error) {
	text, err := json.Marshal(p)
	if err != nil || v.first == "" {
		return string(text), err
	}
	return sealed + v.first + ":" + base64.StdEncoding.EncodeToString(v.keys[v.first].Seal(nil, nil, text, []byte(endpoint))), nil
}

// open is the inverse of seal. It also reads what was stored before there was a key.
func (v *vault) open(endpoint, text string) (p private, err error) {
	plain := []byte(text)
	if rest, is := strings.CutPrefix(text, sealed); is {
		digest, encoded, _ := strings.Cut(rest, ":")
		aead := v.keys[digest]
		if aead == nil {
			return p, fmt.Errorf("%w: add the key with the digest %s to encryption_keys", ErrKey, digest)
		}
		ciphertext, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil {
			plain, err = aead.Open(nil, nil, ciphertext, []byte(endpoint))
		}
		if err != nil {
			return p, fmt.Errorf("%w: the stored text was changed; restore the row, or delete the endpoint and add it again: %w", ErrKey, err)
		}
	}
	if err := json.Unmarshal(plain, &p); err != nil {
		return p, fmt.Errorf("%w: the stored text is not what this package writes; delete the endpoint and add it again", ErrKey)
	}
	return p, nil
}

// at returns the secrets that sign at a time, the newest first.
func (p private) at(now time.Time) []string {
	var all []string
	for _, s := range p.Secrets {
		if s.Until.IsZero() || s.Until.After(now) {
			all = append(all, s.Secret)
		}
	}
	return all
}

// until returns when the first of the secrets ends that sign at a time; zero if none does.
func (p private) until(now time.Time) (first time.Time) {
	for _, s := range p.Secrets {
		if s.Until.After(now) && (first.IsZero() || s.Until.Before(first)) {
			first = s.Until
		}
	}
	return first
}
