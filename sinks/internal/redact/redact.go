// Package redact removes a sink's credentials from the texts of a destination. Some
// destinations repeat what they received, and their texts go to logs and to the errors of
// parked deliveries.
package redact

import (
	"cmp"
	"slices"
	"strings"
)

// minLength is the least number of bytes of a credential. Shorter texts, such as "1" or
// "json", would mask parts of ordinary words.
const minLength = 6

const mask = "***"

// Credentials are the texts to remove. The zero value has none. The methods are safe for
// concurrent use.
type Credentials struct {
	list     []string
	replacer *strings.Replacer
}

// New makes credentials of the texts with at least minLength bytes, and ignores the others.
func New(texts ...string) Credentials {
	list := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return len(text) < minLength })
	// The longest come first, because a credential may begin with another one.
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(list))
	for _, text := range list {
		pairs = append(pairs, text, mask)
	}
	return Credentials{list, strings.NewReplacer(pairs...)}
}

// With returns these credentials and more.
func (c Credentials) With(texts ...string) Credentials {
	return New(append(slices.Clone(c.list), texts...)...)
}

// Text returns a text in which each credential is replaced by "***".
func (c Credentials) Text(text string) string {
	if c.replacer == nil {
		return text
	}
	return c.replacer.Replace(text)
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
