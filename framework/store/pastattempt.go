package store

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Bounds of the attempts that are kept with a parked delivery.
const (
	// MaxPastAttempts is how many there are at most.
	MaxPastAttempts = 5
	// MaxPastError is how many bytes the error of one has at most.
	MaxPastError = 200
)

// PastAttempt is a failed attempt of a parked delivery, after which it was parked. Attempts after which it was not, since
// its whole sink waits, are not kept: they say nothing about the delivery.
type PastAttempt struct {
	// Began is when the sink was called, and Duration how long the call took; in a batch, that of the whole batch.
	Began    time.Time
	Duration time.Duration
	// Number is the number of the attempt. The next one has the same if it used up none, and begins again with 1 if a
	// person has requeued the delivery in between.
	Number int
	// Class is the class of the error as the engine judged it: a word of sinks.Class, or timeout or panic.
	Class string
	// Error is the first line of the error, without the class, cut to MaxPastError bytes.
	Error string
	// Forwarder is the one that made it; see Member.Owner.
	Forwarder string
}

// WithPastAttempt returns the attempts with a later one, the newest first. It leaves the given slice as it is, and drops
// the oldest attempts beyond MaxPastAttempts.
func WithPastAttempt(attempts []PastAttempt, latest PastAttempt) []PastAttempt {
	latest.Error = firstLine(latest.Error)
	return append([]PastAttempt{latest}, attempts[:min(len(attempts), MaxPastAttempts-1)]...)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	printable := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line)
	kept := CutText(printable, MaxPastError)
	if end := strings.LastIndexByte(kept, ' '); len(kept) < len(printable) && end > 0 {
		kept = kept[:end] // half a word would not be recognized as one to mask
	}
	return strings.TrimSpace(kept)
}

// attemptForm is a PastAttempt in the database.
type attemptForm struct {
	Began     time.Time `json:"at"`
	Millis    int64     `json:"ms"`
	Number    int       `json:"n"`
	Class     string    `json:"class"`
	Error     string    `json:"error"`
	Forwarder string    `json:"by"`
}

// EncodePastAttempts encodes attempts as compact JSON for a parked row; none give "".
func EncodePastAttempts(attempts []PastAttempt) string {
	if len(attempts) == 0 {
		return ""
	}
	forms := make([]attemptForm, len(attempts))
	for i, a := range attempts {
		forms[i] = attemptForm{a.Began.UTC().Truncate(time.Millisecond), a.Duration.Milliseconds(), a.Number, a.Class, a.Error, a.Forwarder}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(forms) // texts and numbers
	return strings.TrimSuffix(b.String(), "\n")
}

// DecodePastAttempts is the inverse of EncodePastAttempts, to the millisecond. What EncodePastAttempts cannot have written gives
// none: a row that something else has changed can still be delivered.
func DecodePastAttempts(text string) []PastAttempt {
	var forms []attemptForm
	if text == "" || json.Unmarshal([]byte(text), &forms) != nil {
		return nil
	}
	attempts := make([]PastAttempt, min(len(forms), MaxPastAttempts))
	for i := range attempts {
		f := forms[i]
		attempts[i] = PastAttempt{f.Began, time.Duration(f.Millis) * time.Millisecond, f.Number, f.Class, f.Error, f.Forwarder}
	}
	return attempts
}

// Failure returns the class of the last error, and its text without that; "" if it is not known. The class is that of
// the last attempt, unless the text itself begins with one: what is written while a delivery waits for its destination
// does, and so does what older versions have written.
func (p *Parked) Failure() (class, cause string) {
	if found := classed.FindStringSubmatch(p.LastError); found != nil {
		return found[1], p.LastError[len(found[0]):]
	}
	if len(p.Attempts) > 0 && p.LastError != "" {
		class = p.Attempts[0].Class
	}
	return class, p.LastError
}

// classed matches what an error of package sinks begins with.
var classed = regexp.MustCompile(`^(transient|throttled|unavailable|permanent|invalid|unknown|cancelled)(?: until [0-9TZ:-]+)?(?:: |$)`)
