package observe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// loopPatience is how long a loop of the forwarder may stand still before the process counts as
// stuck. It is longer than any statement of a loop may take.
const loopPatience = 5 * time.Minute

// Live returns why the process should be restarted, or nil. It depends only on the forwarder's
// loops, never on the database, a sink or a lag, because a restart does not fix those.
func (m *Monitor) Live() error {
	target, _ := m.watched()
	if target == nil || m.stopping.Load() {
		return nil
	}
	now := target.Forwarder.Figures()
	for loop, turned := range map[string]time.Time{"looks at the log": now.Looked, "leases lanes": now.Coordinated} {
		if still := time.Since(turned); !turned.IsZero() && still > m.patience+4*now.Lease {
			return fmt.Errorf("the loop that %s has not run for %s", loop, still.Round(time.Second))
		}
	}
	return nil
}

// Ready returns why the process does not work, or nil. The process is ready if the forwarder's
// last successful look at the log and at the leases were no longer ago than twice the lease, and it is
// not stopping. With several databases, one of them must be open. Breakers, lag and paused sinks do not
// matter.
func (m *Monitor) Ready() error {
	for _, c := range m.checks() {
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.name, c.err)
		}
	}
	return nil
}

// check is one condition of readiness.
type check struct {
	name, good string
	err        error
}

func (m *Monitor) checks() []check {
	running := check{name: "running", good: "not stopping"}
	if m.stopping.Load() {
		running.err = errors.New("the program is stopping")
	}
	schema := check{name: "schema", good: "current when the database was opened"}
	database := check{name: "database"}
	target, _ := m.watched()
	if target == nil {
		schema.err = errors.New("no check yet")
		database.err = errors.New("no forwarder has opened the database yet")
		return []check{running, database, schema}
	}
	if target.Databases != nil {
		database.good, database.err = judge(target.Databases())
		return []check{running, database, schema}
	}
	now, trip := target.Forwarder.Figures(), time.Time{}
	if at := m.trip.Load(); at != 0 {
		trip = time.Unix(0, at)
	}
	database.recent("round trip", trip, 2*now.Lease)
	leases := check{name: "leases"}
	leases.recent("look", now.Leased, 2*now.Lease)
	return []check{running, database, leases, schema}
}

// recent makes a check fail if what it is about did not succeed within the limit.
func (c *check) recent(what string, at time.Time, limit time.Duration) {
	ago := time.Since(at)
	c.good = fmt.Sprintf("a %s %s ago", what, ago.Round(time.Millisecond))
	switch {
	case at.IsZero():
		c.err = fmt.Errorf("no %s yet", what)
	case ago > limit:
		c.err = fmt.Errorf("no %s for %s, more than %s", what, ago.Round(time.Millisecond), limit)
	}
}

// judge returns an error if every one of several databases is failing or still being opened.
func judge(databases []Database) (good string, err error) {
	away := 0
	for _, d := range databases {
		if d.State == "failing" || d.State == "opening" {
			away++
		}
	}
	if away == len(databases) {
		return "", fmt.Errorf("none of %d databases is open", len(databases))
	}
	return fmt.Sprintf("%d of %d are neither failing nor still being opened", len(databases)-away, len(databases)), nil
}

func (m *Monitor) serveLive(w http.ResponseWriter, _ *http.Request) { answer(w, "live", m.Live(), "") }

func (m *Monitor) serveReady(w http.ResponseWriter, r *http.Request) {
	var verbose strings.Builder
	if r.URL.Query().Has("verbose") {
		for _, c := range m.checks() {
			if c.err != nil {
				fmt.Fprintf(&verbose, "[-] %s: %v\n", c.name, c.err)
			} else {
				fmt.Fprintf(&verbose, "[+] %s: %s\n", c.name, c.good)
			}
		}
	}
	answer(w, "ready", m.Ready(), verbose.String())
}

// answer writes status 200 with the word, or 503 with what is wrong.
func answer(w http.ResponseWriter, word string, err error, details string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	line := word
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		line = "not " + word + ": " + err.Error()
	}
	fmt.Fprintln(w, details+line)
}
