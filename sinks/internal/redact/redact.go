// Package redact keeps a sink's own credentials out of what a destination says: some
// echo what they got, and it ends in logs and beside parked deliveries.
package redact

import (
	"cmp"
	"slices"
	"strings"
)

// minLength is that of the shortest text that is taken for a credential. Shorter ones
// ("1", "json") would punch holes into everything.
const minLength = 6

const mask = "***"

// Credentials are texts that nothing repeats. The zero value has none. Its methods may be
// called in parallel.
type Credentials struct {
	list     []string
	replacer *strings.Replacer
}

// New makes credentials of those texts that are long enough.
func New(texts ...string) Credentials {
	list := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return len(text) < minLength })
	// The longest come first: one may begin with another.
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(list))
	for _, text := range list {
		pairs = append(pairs, text, mask)
	}
	return Credentials{list, strings.NewReplacer(pairs...)}
}

// With are these credentials and more.
func (c Credentials) With(texts ...string) Credentials {
	return New(append(slices.Clone(c.list), texts...)...)
}

// Text is a text without the credentials.
func (c Credentials) Text(text string) string {
	if c.replacer == nil {
		return text
	}
	return c.replacer.Replace(text)
}

// WithoutCut is a text without the beginning of a credential at its end, where it was cut.
func (c Credentials) WithoutCut(text string) string {
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

// Error is an error whose text has no credentials. It wraps err, so its class stays; nil
// for nil.
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
