package pace

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses of a Trouble: the first one, and the default of the longest one.
const (
	FirstPause = 100 * time.Millisecond
	MaxPause   = 5 * time.Second
)

// maxLogged bounds the remembered texts, in case they differ each time.
const maxLogged = 20

// Trouble is for something that is retried until it works. It returns how long to wait before
// the next try. It logs once when the failures begin, once for each different failure, and once
// when they are over. It is not safe for concurrent use.
type Trouble struct {
	log    *slog.Logger
	what   string
	pace   *backoff.ExponentialBackOff
	since  time.Time
	next   time.Time       // no try before
	logged map[string]bool // advice and texts logged since the failures began
}

// NewTrouble returns a Trouble. Log lines name what is retried as what, such as "leasing". Pauses
// grow from FirstPause to most; 0 means MaxPause.
func NewTrouble(log *slog.Logger, what string, most time.Duration) *Trouble {
	if most == 0 {
		most = MaxPause
	}
	return &Trouble{log: log, what: what, pace: &backoff.ExponentialBackOff{
		InitialInterval:     min(FirstPause, most),
		Multiplier:          2,
		MaxInterval:         most,
		RandomizationFactor: 0.2,
	}}
}

// Met records an error and returns how long to wait before the next try. Errors with the same cause
// are logged once, and so are errors with the same advice, whose texts may name files and
// processes.
func (t *Trouble) Met(err error) time.Duration { return t.met(slog.LevelError, err) }

// Expected is Met for an error that the next try mends as a rule. It is logged as a warning.
func (t *Trouble) Expected(err error) time.Duration { return t.met(slog.LevelWarn, err) }

func (t *Trouble) met(level slog.Level, err error) time.Duration {
	if t.since.IsZero() {
		t.since, t.logged = time.Now(), make(map[string]bool)
	}
	text, attributes := cause(err), []any{"error", err}
	var advised interface {
		error
		Advice() string
	}
	if errors.As(err, &advised) {
		text, attributes = advised.Advice(), append(attributes, "hint", advised.Advice())
	}
	if !t.logged[text] && len(t.logged) < maxLogged {
		t.logged[text] = true
		t.log.Log(context.Background(), level, t.what+" failed, trying again", attributes...)
	}
	pause := t.pace.NextBackOff()
	t.next = time.Now().Add(pause)
	return pause
}

// Until returns when to try again; zero means at once. t may be nil.
func (t *Trouble) Until() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.next
}

// Over records a success.
func (t *Trouble) Over() {
	if t.since.IsZero() {
		return
	}
	t.log.Info(t.what+" works again", "after", time.Since(t.since).Round(time.Millisecond))
	t.since, t.next, t.logged = time.Time{}, time.Time{}, nil
	t.pace.Reset()
}

// cause returns the text of an error without the context that names the operation.
func cause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// Sleep waits and returns true; false if ctx is done first.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
