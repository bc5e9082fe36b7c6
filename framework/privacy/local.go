package privacy

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// LocalKeys returns the master key that is the first of keys, each base64 of 32 bytes, as openssl rand
// -base64 32 makes it. The others only unwrap: they are older ones, until a rotation. It fails with ErrConfig.
func LocalKeys(keys ...string) (Master, error) {
	m := localKeys{keys: make(map[string]cipher.AEAD, len(keys))}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: keys: there is none", ErrConfig)
	}
	for i, text := range keys {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != keyLength {
			return nil, fmt.Errorf("%w: keys[%d] is not base64 of %d bytes; make one with: openssl rand -base64 %d", ErrConfig, i, keyLength, keyLength)
		}
		sum := sha256.Sum256(key)
		name := "local:" + hex.EncodeToString(sum[:4])
		if m.keys[name] = newAEAD(key); i == 0 {
			m.first = name
		}
	}
	return m, nil
}

type localKeys struct {
	first string
	keys  map[string]cipher.AEAD // by the beginning of the digest
}

func (m localKeys) Wrap(_ context.Context, key, bound []byte) (wrapped []byte, name string, err error) {
	return m.keys[m.first].Seal(nil, nil, key, bound), m.first, nil
}

func (m localKeys) Unwrap(_ context.Context, wrapped, bound []byte, name string) ([]byte, error) {
	aead := m.keys[name]
	if aead == nil {
		return nil, fmt.Errorf("%w: it is %s: add the key with this digest to keys; the configured ones begin with %s", ErrMaster, name, m.first)
	}
	key, err := aead.Open(nil, nil, wrapped, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: what %s has wrapped was changed: restore the table of keys", ErrMaster, name)
	}
	return key, nil
}
