package forwarder

import (
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// trouble reports what goes wrong again and again: once when it begins or
// changes, once when it is over. It is for one goroutine.
type trouble struct {
	log   *slog.Logger
	what  string
	pace  *backoff.ExponentialBackOff
	since time.Time
	text  string
}

func newTrouble(log *slog.Logger, what string) *trouble {
	return &trouble{log: log, what: what, pace: reconnect()}
}

// met takes note of an error and returns how long to wait before the next try.
func (t *trouble) met(err error) time.Duration {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if text := err.Error(); text != t.text {
		t.text = text
		t.log.Error(t.what+" failed, trying again", "error", err)
	}
	return t.pace.NextBackOff()
}

// over takes note that it works.
func (t *trouble) over() {
	if t.since.IsZero() {
		return
	}
	t.log.Info(t.what+" works again", "after", time.Since(t.since).Round(time.Millisecond))
	t.since, t.text = time.Time{}, ""
	t.pace.Reset()
}
