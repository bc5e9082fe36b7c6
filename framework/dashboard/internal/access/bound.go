package access

import (
	"net/http"
	"time"
)

const (
	// atOnce is how many requests may use the database at once: they share its connections with
	// the forwarder of the process.
	atOnce = 4
	// turnTime is how long a request waits for its turn.
	turnTime = 5 * time.Second
)

// Bound limits how many requests are served at once. Other requests wait for their turn; after
// turnTime they are refused with 503.
type Bound struct{ turns chan struct{} }

// NewBound returns a Bound. All handlers that use a database should share it.
func NewBound() Bound { return Bound{make(chan struct{}, atOnce)} }

// Of serves a handler within the bound.
func (b Bound) Of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(turnTime)
		defer timer.Stop()
		select {
		case b.turns <- struct{}{}:
			defer func() { <-b.turns }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		case <-timer.C:
			answer(w, r, &refusal{status: http.StatusServiceUnavailable, text: "too many requests use the database at once: try again in a moment", after: time.Second})
		}
	})
}
