// Package redact removes a sink's credentials from the texts of a destination. Some
// destinations repeat what they received, and their texts go to logs and to the errors of
// parked deliveries.
package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// minLength is the least number of bytes of a credential. Shorter texts, such as "1" or
// "json", would mask parts of ordinary words.
const minLength = 6

// shortLength is that of WithShort.
const shortLength = 4

const mask = "***"

// Credentials are the texts to remove, also if they are escaped as in JSON, HTML, URLs and quoted
// strings, or are encoded in base64 or hex, alone or with other text. The zero value has none. The
// methods are safe for concurrent use.
type Credentials struct {
	list     []string
	spelling []string // of all, without escapes
}

// New makes credentials of the texts with at least minLength bytes, and ignores the others.
func New(texts ...string) Credentials { return Credentials{}.With(texts...) }

// With returns these credentials and more.
func (c Credentials) With(texts ...string) Credentials { return c.with(minLength, texts) }

// WithShort returns these credentials and more, of which shortLength bytes are enough: for answers of which too much
// may be hidden rather than too little.
func (c Credentials) WithShort(texts ...string) Credentials { return c.with(shortLength, texts) }

func (c Credentials) with(least int, texts []string) Credentials {
	list := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return len(text) < least })
	if len(list) == 0 {
		return c
	}
	list = append(list, c.list...)
	// The longest come first, because a credential may begin with another one.
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	list = slices.Compact(list)
	c = Credentials{list: list}
	for _, text := range list {
		c.spelling = append(c.spelling, spellings(text)...)
	}
	return c
}

// spellings returns a credential as it is, and as part of encoded texts.
func spellings(text string) []string {
	all := []string{text, strings.ReplaceAll(text, " ", "+"), hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text)))}
	if plain := unescape(verbatim(text)); len(plain.text) >= minLength {
		all = append(all, plain.text) // where its own escapes are undone with those around it
	}
	// Base64 depends on how many bytes come before, modulo 3. The characters at both ends also
	// depend on the bytes beside the credential.
	for before := range 3 {
		raw := append(make([]byte, before), text...)
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, encoding.EncodeToString(raw)[(before*8+5)/6:len(raw)*8/6])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxEscapes is how often a text may be escaped, one escape inside another.
const maxEscapes = 3

// Text returns a text in which each credential is replaced by "***".
func (c Credentials) Text(text string) string {
	if !c.in(text) { // which costs much less than to find out where
		return text
	}
	hidden := make([]bool, len(text))
	for round, d := 0, verbatim(text); ; round++ {
		for _, s := range c.spelling {
			d.hide(s, hidden)
		}
		next := unescape(d)
		if round == maxEscapes || len(next.text) == len(d.text) {
			break
		}
		d = next
	}
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !hidden[i]:
			b.WriteByte(text[i])
		case i == 0 || !hidden[i-1]:
			b.WriteString(mask)
		}
	}
	return b.String()
}

// in reports whether a text has a credential.
func (c Credentials) in(text string) bool {
	for round, d := 0, (decoded{text: text}); ; round++ {
		if slices.ContainsFunc(c.spelling, func(s string) bool { return strings.Contains(d.text, s) }) {
			return true
		}
		next := unescape(d)
		if round == maxEscapes || len(next.text) == len(d.text) {
			return false
		}
		d = next
	}
}

// hide marks the bytes of the original text in which s stands.
func (d decoded) hide(s string, hidden []bool) {
	for at := 0; ; {
		i := strings.Index(d.text[at:], s)
		if i < 0 {
			return
		}
		begin, end := at+i, at+i+len(s)
		for j := d.begin[begin]; j < d.end[end-1]; j++ {
			hidden[j] = true
		}
		at = end
	}
}

// TrimCut returns a text that was cut off, without the beginning of a credential at its end.
func (c Credentials) TrimCut(text string) string {
	for _, credential := range c.list {
		for n := min(len(credential)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, credential[:n]) {
				text = text[:len(text)-n]
				break
			}
		}
	}
	return text
}

// Error returns an error whose text has no credentials. It wraps err, so the class stays the
// same. The error is nil if err is nil.
func (c Credentials) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := c.Text(text); clean != text {
		return &redacted{clean, err}
	}
	return err
}

type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }
