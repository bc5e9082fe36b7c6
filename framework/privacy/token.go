package privacy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
)

// A token is what stands in a payload in place of a private value: a JSON text of the prefix, the id of the key,
// a colon, and the base64url of a nonce of 12 bytes, the value encrypted with AES-256-GCM, and the tag of
// 16 bytes. The value is the JSON of the payload at this place; if the whole payload is private, it is all of
// its bytes. Type, version and id of the notification are authenticated with it: see boundTo.
const tokenPrefix = "waybill:1:"

const (
	keyLength = 32 // of AES-256, in bytes
	idLength  = 16 // of an id: 80 bits as base32
	overhead  = 12 + 16
)

// newID returns a random id: 16 characters of a to z and 2 to 7.
func newID() string {
	raw := make([]byte, 10)
	rand.Read(raw) // never fails
	return string(bytes.ToLower([]byte(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))))
}

// newAEAD returns AES-256-GCM with a random nonce (NIST SP 800-38D), for at most 2^32 values. It panics if the
// key has another length.
func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil || len(key) != keyLength {
		panic("a key has " + strconv.Itoa(len(key)) + " bytes")
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the right block size
	}
	return aead
}

// boundTo returns what is authenticated with the values of a notification: type, version and id, separated by
// zero bytes, which none of them has.
func boundTo(e *notification.Envelope) []byte {
	b := append([]byte(e.Type), 0)
	b = strconv.AppendInt(b, int64(e.Version), 10)
	return append(append(b, 0), e.ID...)
}

// appendToken appends the token of a value.
func appendToken(to []byte, id string, aead cipher.AEAD, value, bound []byte) []byte {
	to = append(append(append(append(to, '"'), tokenPrefix...), id...), ':')
	to = base64.RawURLEncoding.AppendEncode(to, aead.Seal(nil, nil, value, bound))
	return append(to, '"')
}

// token is a token in a payload.
type token struct {
	begin, end int // with its quotes
	id         string
	sealed     []byte // as base64url
}

// nextToken returns the first token that begins at from or later. A text that only looks like a token is not one
// if it is escaped, malformed, or the name of a member.
func nextToken(payload []byte, from int) (t token, found bool) {
	for {
		i := bytes.Index(payload[from:], []byte(`"`+tokenPrefix))
		if i < 0 {
			return t, false
		}
		begin := from + i
		from = begin + 1
		if isEscaped(payload, begin) {
			continue
		}
		rest := payload[begin+1+len(tokenPrefix):]
		n := bytes.IndexByte(rest, '"')
		if n < idLength+1 || rest[idLength] != ':' || !isID(rest[:idLength]) || !isBase64(rest[idLength+1:n]) {
			continue
		}
		end := begin + 1 + len(tokenPrefix) + n + 1
		if after := bytes.TrimLeft(payload[end:], " \t\r\n"); len(after) > 0 && after[0] == ':' {
			continue
		}
		return token{begin: begin, end: end, id: string(rest[:idLength]), sealed: rest[idLength+1 : n]}, true
	}
}

// isEscaped reports whether the byte at i is part of an escape that begins before it.
func isEscaped(text []byte, i int) bool {
	n := 0
	for n < i && text[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// IsKeyID reports whether a text has the form of the id of a key.
func IsKeyID(text string) bool { return len(text) == idLength && isID([]byte(text)) }

func isID(text []byte) bool {
	return isOf(text, "abcdefghijklmnopqrstuvwxyz234567")
}

func isBase64(text []byte) bool {
	return isOf(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") && len(text)*3/4 >= overhead
}

func isOf(text []byte, alphabet string) bool {
	return len(bytes.Trim(text, alphabet)) == 0
}

// open returns the value of a token.
func (t token) open(aead cipher.AEAD, bound []byte) ([]byte, error) {
	sealed := make([]byte, base64.RawURLEncoding.DecodedLen(len(t.sealed)))
	n, err := base64.RawURLEncoding.Decode(sealed, t.sealed)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nil, sealed[:n], bound)
}

// member returns where the member that has the token as its value begins and ends in an object, with the comma that
// its removal needs; ok is false if the token is no member's value.
func (t token) member(payload []byte) (begin, end int, ok bool) {
	trim := func(to int) int { return len(bytes.TrimRight(payload[:to], " \t\r\n")) }
	at := trim(t.begin)
	if at == 0 || payload[at-1] != ':' {
		return 0, 0, false
	}
	at = trim(at - 1)
	if at < 2 || payload[at-1] != '"' {
		return 0, 0, false
	}
	for begin = at - 2; begin > 0 && (payload[begin] != '"' || isEscaped(payload, begin)); begin-- {
	}
	end = len(payload) - len(bytes.TrimLeft(payload[t.end:], " \t\r\n"))
	if end < len(payload) && payload[end] == ',' {
		return begin, end + 1, true
	}
	if before := trim(begin); before > 0 && payload[before-1] == ',' {
		return before - 1, end, true
	}
	return begin, end, true
}
