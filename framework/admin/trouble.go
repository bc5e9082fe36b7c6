package admin

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// The limits from which on something is trouble, besides store.Handover and the minute after which
// store.ParkedFigures counts a delivery as overdue. The commands, the dashboard, the doctor and the
// alert rules have no others.
const (
	// LateAfter is the age of the oldest pending row of a sink.
	LateAfter = 5 * time.Minute
	// HeldAfter is how long a transaction that has written to the log may be open.
	HeldAfter = 10 * time.Second
	// FailedAttempts is how many attempts of a sink may fail while it delivers nothing.
	FailedAttempts = 5
)

// KeptTooLong reports whether rows of an age should have left the log long ago: they are removed in
// batches and partitions, so some stay beyond the retention. A retention of 0 keeps all rows.
func KeptTooLong(age, retention time.Duration) bool {
	return retention > 0 && age > retention+retention/10+time.Hour
}

// Look is an outbox at one moment.
type Look struct {
	// At is the time of the look; zero before the first one.
	At         time.Time
	Sample     store.Sample
	Membership store.Membership
	// Sinks has the work of all forwarders for each sink, as a sum. A sink that no heartbeat names
	// is missing.
	Sinks map[string]store.SinkRunning
	// Pauses are the actions that paused sinks, by sink, as far as they are known; see Admin.Pauses.
	Pauses map[string]store.Action
}

// What is wrong with a sink.
const (
	Paused       = "paused"
	BreakerOpen  = "breaker_open"
	NoForwarder  = "no_forwarder"
	LanesUnowned = "lanes_unowned"
	Throttled    = "throttled"
	Late         = "lag"
	DeadLetters  = "dead"
	Failing      = "failing"
	Overdue      = "overdue"
	HookFails    = "hook_fails"
	UnknownType  = "unknown_type"
	Destinations = "destinations"
	// Stalled and DisabledEndpoint are judged for alerts only.
	Stalled          = "stalled"
	DisabledEndpoint = "disabled_endpoint"
)

// HeldTransaction is what is wrong with the log while a transaction that has written to it stays open.
const HeldTransaction = "held_transaction"

// Trouble is something that is wrong with a sink, or with the log. Fields that do not apply are zero.
type Trouble struct {
	// Sink is "" for the log.
	Sink string `json:"sink"`
	// What is one of the constants above, and Text says it in words.
	What string `json:"trouble"`
	Text string `json:"text"`
	// Destination is the one that is throttled or has an open breaker; "" for the whole sink.
	Destination string `json:"destination,omitempty"`
	// Endpoint is the disabled one, and Tenant its customer.
	Endpoint string `json:"endpoint,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	// Forwarder is the one that sees it, By the person who did it, Cause the reason, Since and Until its time.
	Forwarder string    `json:"forwarder,omitempty"`
	By        string    `json:"by,omitempty"`
	Cause     string    `json:"cause,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	// Count is how many deliveries, lanes or destinations are concerned. Of is how many lanes there
	// are.
	Count int `json:"count,omitempty"`
	Of    int `json:"of,omitempty"`
}

// Tolerance is how late a sink may be and how many of its deliveries may be dead without trouble.
type Tolerance struct {
	Lag  time.Duration
	Dead int
}

// Usual is the tolerance of those who do not ask for another one.
var Usual = Tolerance{Lag: LateAfter}

// Troubles returns what is wrong with a sink of the sample, the worst first, and then each
// destination that a forwarder names. It is empty for a healthy sink.
func (l *Look) Troubles(s *store.SinkSample, t Tolerance) []Trouble {
	all := l.Holding(s.Sink)
	if failed := l.fruitless(s.Sink); failed >= FailedAttempts && len(all) == 0 {
		cause := firstLine(s.Parked.In(store.StateRetrying).LastError)
		text := fmt.Sprintf("nothing was delivered in the last minutes, and %d attempts failed", failed)
		all = append(all, Trouble{Sink: s.Sink, What: Failing, Text: because(text, cause), Cause: cause, Count: int(failed)})
	}
	if s.Lag > t.Lag {
		text := fmt.Sprintf("the oldest pending notification occurred %s ago, and the limit is %s", s.Lag.Round(time.Second), t.Lag)
		all = append(all, Trouble{Sink: s.Sink, What: Late, Text: text})
	}
	if dead := s.Parked.In(store.StateDead); dead.Count > t.Dead {
		all = append(all, Trouble{Sink: s.Sink, What: DeadLetters, Text: because(deliveries(dead.Count)+" dead", firstLine(dead.LastError)), Cause: firstLine(dead.LastError), Count: dead.Count})
	}
	if n := s.Parked.Overdue; n > 0 && !s.Paused {
		all = append(all, Trouble{Sink: s.Sink, What: Overdue, Text: deliveries(n) + " overdue for more than a minute", Count: n})
	}
	if n, cause := s.Parked.Hooks, s.Parked.HookError; n > 0 {
		all = append(all, Trouble{Sink: s.Sink, What: HookFails, Text: because("a hook fails for "+deliveries(n), cause), Cause: cause, Count: n})
	}
	return append(all, l.destinations(s.Sink)...)
}

// fruitless returns how many attempts of a sink have failed in the last five to ten minutes; 0 if anything was delivered.
func (l *Look) fruitless(sink string) (failed int64) {
	for _, m := range l.Membership.Members {
		for _, r := range m.Running.Sinks {
			if r.Sink != sink {
				continue
			}
			for _, done := range r.Hour[:min(2, len(r.Hour))] {
				if done[0] > 0 {
					return 0
				}
				failed += done[1]
			}
		}
	}
	return failed
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// Held returns the trouble of the log: a transaction that has been open for at least a time; none if that is 0.
func (l *Look) Held(after time.Duration) (all []Trouble) {
	held := l.Sample.Held
	if after > 0 && held >= after {
		text := fmt.Sprintf("a transaction that has written to the log has been open for %s", held.Round(time.Second))
		all = append(all, Trouble{What: HeldTransaction, Text: text, Since: l.At.Add(-held)})
	}
	return all
}

// StalledSince returns the trouble of a sink that has had pending rows since a time and settled none.
func StalledSince(s *store.SinkSample, since time.Time) Trouble {
	text := fmt.Sprintf("nothing was delivered since %s, with %s pending", timeText(since), CountText(int64(s.Pending), s.Estimated))
	return Trouble{Sink: s.Sink, What: Stalled, Text: text, Since: since, Count: s.Pending}
}

// Disabled returns the trouble of an endpoint of a sink, if it was disabled by other than a person.
func Disabled(sink string, e *store.Endpoint) (t Trouble, is bool) {
	if e.DisabledReason == "" || strings.HasPrefix(e.DisabledReason, store.DisabledByPerson) {
		return t, false
	}
	text := fmt.Sprintf("endpoint %s of tenant %s is disabled: %s", e.ID, e.Tenant, e.DisabledReason)
	return Trouble{Sink: sink, What: DisabledEndpoint, Text: text, Endpoint: e.ID, Tenant: e.Tenant, Cause: e.DisabledReason, Since: e.DisabledAt}, true
}

// Holding returns what holds up all of a sink, the worst first. It needs the Membership only.
func (l *Look) Holding(sink string) (all []Trouble) {
	var breaker, throttled []Trouble
	for _, m := range l.Membership.Members {
		s := m.States[sink]
		if s.BreakerOpen && (breaker == nil || s.OpenSince.Before(breaker[0].Since)) {
			breaker = []Trouble{breakerOpen(sink, m.Owner, s.OpenSince, s.Cause)}
		}
		if s.ThrottledUntil.After(time.Now()) && throttled == nil {
			throttled = []Trouble{throttledUntil(sink, m.Owner, s.ThrottledUntil, s.Cause)}
		}
	}
	if running := l.Sinks[sink]; running.BreakerOpen && breaker == nil {
		breaker = []Trouble{breakerOpen(sink, "", time.Time{}, running.Cause)}
	}
	paused, unowned, of := l.lanes(sink)
	if paused {
		all = append(all, l.pause(sink))
	}
	all = append(all, breaker...)
	if l.Sample.Forwarders == 0 && len(l.Membership.Members) == 0 {
		all = append(all, Trouble{Sink: sink, What: NoForwarder, Text: "no forwarder is running"})
	} else if unowned > 0 {
		all = append(all, Trouble{Sink: sink, What: LanesUnowned, Text: fmt.Sprintf("%d of %d lanes have no forwarder", unowned, of), Count: unowned, Of: of})
	}
	return append(all, throttled...)
}

// pause returns the trouble of a paused sink: who paused it, when and why, if that is known.
func (l *Look) pause(sink string) Trouble {
	t := Trouble{Sink: sink, What: Paused, Text: "the sink is paused"}
	if p, known := l.Pauses[sink]; known {
		t.Since, t.By, t.Cause = p.At.UTC(), p.Who, p.Reason
		t.Text = because(fmt.Sprintf("the sink is paused since %s by %s", timeText(p.At), cmp.Or(p.Who, "an unnamed user")), p.Reason)
	}
	return t
}

// lanes counts the lanes of a sink, and those of them that no forwarder works on.
func (l *Look) lanes(sink string) (paused bool, unowned, of int) {
	for i := range l.Membership.Lanes {
		if lane := &l.Membership.Lanes[i]; lane.Lane.Sink == sink {
			of++
			paused = paused || lane.Paused
			if lane.IsUnowned() {
				unowned++
			}
		}
	}
	return paused, unowned, of
}

// destinations returns a trouble that counts the destinations of a sink that are throttled or fail,
// and one for each that a forwarder names.
func (l *Look) destinations(sink string) (all []Trouble) {
	held := 0
	for _, m := range l.Membership.Members {
		s := m.States[sink]
		held = max(held, s.AllDestinations, len(s.Destinations))
		for _, d := range s.Destinations {
			t := throttledUntil(sink, m.Owner, d.ThrottledUntil, d.Cause)
			if !d.OpenSince.IsZero() {
				t = breakerOpen(sink, m.Owner, d.OpenSince, d.Cause)
			} else if !d.ThrottledUntil.After(time.Now()) {
				continue
			}
			t.Destination = d.Destination
			all = append(all, t)
		}
	}
	if held == 0 {
		return nil
	}
	text := fmt.Sprintf("%d of its destinations throttled or with an open breaker", held)
	return append([]Trouble{{Sink: sink, What: Destinations, Text: text, Count: held}}, all...)
}

func breakerOpen(sink, forwarder string, since time.Time, cause string) Trouble {
	text := "breaker open"
	if forwarder != "" {
		text = fmt.Sprintf("breaker open since %s at %s", timeText(since), forwarder)
	}
	return Trouble{Sink: sink, What: BreakerOpen, Text: because(text, cause), Forwarder: forwarder, Since: since, Cause: cause}
}

func throttledUntil(sink, forwarder string, until time.Time, cause string) Trouble {
	text := fmt.Sprintf("throttled until %s at %s", timeText(until), forwarder)
	return Trouble{Sink: sink, What: Throttled, Text: because(text, cause), Forwarder: forwarder, Until: until, Cause: cause}
}

// because adds a cause, if it is known.
func because(text, cause string) string {
	if cause == "" {
		return text
	}
	return text + ": " + cause
}

func deliveries(n int) string {
	switch {
	case n == 1:
		return "1 delivery"
	case n >= store.ParkedLimit: // where counting stops
		return "at least " + CountText(int64(n), false) + " deliveries"
	}
	return fmt.Sprintf("%d deliveries", n)
}
