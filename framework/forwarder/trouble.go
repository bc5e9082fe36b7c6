package forwarder

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/waybill-go/waybill/framework/store"
)

// trouble reports what goes wrong again and again: once when it begins, once for
// each new way in which it goes wrong, once when it is over. It is for one
// goroutine.
type trouble struct {
	log   *slog.Logger
	what  string
	pace  *backoff.ExponentialBackOff
	since time.Time
	next  time.Time       // it is not worth trying before
	said  map[string]bool // the hints and texts since then
}

func newTrouble(log *slog.Logger, what string) *trouble {
	return &trouble{log: log, what: what, pace: reconnect()}
}

// maxSaid bounds what is remembered of texts that differ each time.
const maxSaid = 20

// met takes note of an error and returns how long to wait before the next try.
// Errors with the same hint are the same, whose texts name files and processes, and
// errors with the same cause.
func (t *trouble) met(err error) time.Duration {
	if t.since.IsZero() {
		t.since, t.said = time.Now(), make(map[string]bool)
	}
	text, attributes := cause(err), []any{"error", err}
	var advised *store.AdvisedError
	if errors.As(err, &advised) {
		text, attributes = advised.Hint, append(attributes, "hint", advised.Hint)
	}
	if !t.said[text] && len(t.said) < maxSaid {
		t.said[text] = true
		t.log.Error(t.what+" failed, trying again", attributes...)
	}
	pause := t.pace.NextBackOff()
	t.next = time.Now().Add(pause)
	return pause
}

// until is when to try again; zero for at once. t may be nil.
func (t *trouble) until() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.next
}

// cause is the text of an error without what was being tried.
func cause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// over takes note that it works.
func (t *trouble) over() {
	if t.since.IsZero() {
		return
	}
	t.log.Info(t.what+" works again", "after", time.Since(t.since).Round(time.Millisecond))
	t.since, t.next, t.said = time.Time{}, time.Time{}, nil
	t.pace.Reset()
}
