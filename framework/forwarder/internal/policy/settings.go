package policy

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Settings are the settings of one sink, with their defaults. They can change while it runs.
type Settings struct {
	Parallelism Parallelism
	Retry       Retry
	OnDead      OnDead
	Timeout     time.Duration
	Rate        Rate
	Breaker     Breaker
	// Fairness is the name of the metadata whose values share the sink; "" for none.
	Fairness string
}

// Text cuts a text to at most limit bytes of valid UTF-8 without NUL bytes, which every database
// accepts.
func Text(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
