package policy_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/settings"
)

var (
	err500     = errors.New("500")
	errRefused = errors.New("connection refused")
	errBad     = errors.New("400")
)

// toOpen is how many failures of different keys open a breaker.
const toOpen = 18

func circuit(b settings.Breaker) *policy.Circuit { return policy.NewCircuit(b.WithDefaults()) }

// fail reports failed deliveries of this many keys, and returns whether the last one opened the breaker.
func fail(t require.TestingT, c *policy.Circuit, keys int) (opened bool) {
	for i := range keys {
		var spent bool
		spent, opened = c.Failed(begun, fmt.Sprint("key", i), err500)
		require.True(t, spent, "each failure spends an attempt")
		require.True(t, !opened || i == keys-1, "opened after %d of %d", i+1, keys)
	}
	return opened
}

func TestFailuresOfDifferentKeysOpenTheBreaker(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	for range 2 { // the share counts only from 20 outcomes on
		require.False(t, c.Delivered())
	}
	require.True(t, fail(t, c, toOpen))
	require.True(t, c.IsOpen())
	require.False(t, c.Unreachable())
	require.Equal(t, begun, c.OpenSince())
	require.Equal(t, err500, c.Cause())
	require.Zero(t, c.Limit(16, begun))
}

func TestFailuresOfOneKeyLeaveTheBreakerClosed(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	for range 1000 {
		spent, opened := c.Failed(begun, "bad", err500)
		require.True(t, spent)
		require.False(t, opened)
	}
	require.Equal(t, 16, c.Limit(16, begun))
}

func TestFailuresAmongSuccessesLeaveTheBreakerClosed(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	for i := range 1000 {
		if i%5 == 0 {
			require.False(t, c.Delivered())
			continue
		}
		_, opened := c.Failed(begun, fmt.Sprint(i), err500)
		require.False(t, opened)
	}
	require.False(t, c.IsOpen())
}

func TestFailuresOfTwoKeysForMinutesOpenTheBreaker(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	fails := func(after time.Duration, key string) (opened bool) {
		spent, opened := c.Failed(begun.Add(after), key, err500)
		require.True(t, spent)
		return opened
	}
	require.False(t, fails(0, "a"))
	require.False(t, fails(3*time.Minute, "a"), "one key alone may be the cause itself")
	require.False(t, c.Delivered())
	require.False(t, fails(4*time.Minute, "a"), "something succeeded in between")
	require.False(t, fails(5*time.Minute, "b"))
	require.True(t, fails(6*time.Minute, "a"))
	c.Begin()
	require.True(t, c.Delivered())
	require.False(t, fails(10*time.Minute, "a"), "the time starts again")
}

func TestABreakerThatIsOffOpensOnlyForUnavailability(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{Off: true})
	require.False(t, fail(t, c, 1000))
	require.True(t, c.Unavailable(begun, errRefused))
	require.True(t, c.Unreachable())
	require.Equal(t, errRefused, c.Cause())
}

func TestProbesHaveGrowingIntervals(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{MaxPause: time.Minute})
	now := begun
	require.True(t, c.Unavailable(now, errRefused))
	expected := 100 * time.Millisecond
	for range 15 {
		require.InEpsilon(t, expected, c.Next().Sub(now), 0.21)
		expected = min(2*expected, time.Minute)
		require.Zero(t, c.Limit(16, c.Next().Add(-1)))
		now = c.Next()
		require.Equal(t, 1, c.Limit(16, now))
		c.Begin()
		require.False(t, c.Unavailable(now, errRefused), "it was open")
	}
	require.Equal(t, begun, c.OpenSince())
	c.Begin()
	require.True(t, c.Delivered())
	require.Equal(t, 16, c.Limit(16, now))
	require.Nil(t, c.Cause())
	require.True(t, c.Unavailable(now, errRefused))
	require.InEpsilon(t, 100*time.Millisecond, c.Next().Sub(now), 0.21, "the intervals start again")
}

func TestOneSuccessClosesTheBreaker(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	require.True(t, fail(t, c, toOpen))
	c.Begin()
	spent, opened := c.Failed(begun, "probe", err500)
	require.False(t, spent, "a probe spends no attempt")
	require.False(t, opened)
	c.Begin()
	require.False(t, c.Answered(), "it was reachable throughout")
	require.True(t, c.Delivered())
	require.False(t, c.IsOpen())
	require.False(t, fail(t, c, 17), "the count starts again")
}

func TestADestinationThatAnswersAgainIsReachable(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	require.False(t, c.Answered())
	require.True(t, c.Unavailable(begun, errRefused))
	c.Begin()
	require.True(t, c.Answered(), "the class of the error does not matter")
	spent, opened := c.Failed(begun, "a", err500)
	require.True(t, spent)
	require.False(t, opened)
}

func TestOutcomesOfCallsBeforeTheBreakerOpenedDoNotCount(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	require.True(t, fail(t, c, toOpen))
	next := c.Next()
	require.False(t, c.Delivered(), "the call began before")
	require.False(t, c.Answered())
	require.False(t, c.Unavailable(begun, errRefused))
	spent, opened := c.Failed(begun, "late", err500)
	require.False(t, spent)
	require.False(t, opened)
	require.True(t, c.IsOpen())
	require.Equal(t, err500, c.Cause())
	require.Equal(t, next, c.Next(), "the probe is not postponed")

	c = circuit(settings.Breaker{})
	require.True(t, c.Unavailable(begun, errRefused))
	next = c.Next()
	require.False(t, c.Delivered(), "the call began before")
	require.False(t, c.Unavailable(begun, errRefused))
	require.True(t, c.IsOpen())
	require.Equal(t, next, c.Next(), "the probe is not postponed")
	spent, opened = c.Failed(begun, "late", err500)
	require.True(t, spent, "the destination answered this call")
	require.False(t, opened)
}

// refuse reports this many permanent failures, and returns the result of the last one.
func refuse(c *policy.Circuit, n int) (last policy.Refusal) {
	for range n {
		last = c.Refused(begun, errBad)
	}
	return last
}

func TestRefusalsInARowOpenTheBreaker(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	refuse(c, 9)
	require.False(t, c.Delivered())
	require.Equal(t, policy.RefusalFinal, refuse(c, 9), "a success came in between")
	require.False(t, c.IsOpen())
	require.Equal(t, policy.RefusalFinal, c.Refused(begun, errBad))
	require.True(t, c.IsOpen())
	require.False(t, c.Unreachable())
	require.Equal(t, errBad, c.Cause())

	require.Equal(t, policy.RefusalStray, c.Refused(begun, errBad))
	c.Begin()
	require.Equal(t, policy.RefusalProbe, c.Refused(begun, errBad))
	require.True(t, c.IsOpen())
	c.Begin()
	require.True(t, c.Delivered())
	require.Equal(t, 1, c.Recovered())
	require.Equal(t, policy.RefusalFinal, refuse(c, 9), "the count starts again")
	require.False(t, c.IsOpen())
}

func TestRefusalsWithoutABreakerLeaveItClosed(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{Off: true})
	require.Equal(t, policy.RefusalFinal, refuse(c, 1000))
	require.False(t, c.IsOpen())
}

func TestARefusalEndsAnOutage(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(c *policy.Circuit){
		"unavailable": func(c *policy.Circuit) { c.Unavailable(begun, errRefused) },
		"failures":    func(c *policy.Circuit) { fail(t, c, toOpen) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := circuit(settings.Breaker{})
			begin(c)
			c.Begin()
			require.Equal(t, policy.RefusalFinal, c.Refused(begun, errBad))
			require.False(t, c.IsOpen())
			require.Zero(t, c.Recovered(), "no delivery succeeded")
		})
	}
}

func TestAThrottleLetsNothingBeginUntilItsTime(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	require.True(t, c.Throttle(begun.Add(time.Minute), begun, nil))
	require.False(t, c.Throttle(begun.Add(time.Second), begun, nil), "an earlier time changes nothing")
	require.Equal(t, begun.Add(time.Minute), c.ThrottledUntil())
	require.Equal(t, begun.Add(time.Minute), c.Next())
	require.Zero(t, c.Limit(16, begun.Add(time.Minute-1)))
	require.Equal(t, 16, c.Limit(16, begun.Add(time.Minute)))
	require.False(t, c.IsOpen())
	require.True(t, c.Throttle(begun.Add(time.Hour), begun.Add(time.Minute), nil), "the throttle starts again")

	c.Unavailable(begun, errRefused)
	require.Equal(t, begun.Add(time.Hour), c.Next(), "the later one of throttle and probe")
	require.Zero(t, c.Limit(16, begun.Add(time.Minute)))
}

func TestOtherSettingsCloseTheBreakerAndLeaveTheThrottle(t *testing.T) {
	t.Parallel()
	c := circuit(settings.Breaker{})
	c.Throttle(begun.Add(time.Minute), begun, nil)
	require.True(t, fail(t, c, toOpen))
	c.Adjust(settings.Breaker{MaxPause: time.Minute}.WithDefaults())
	require.False(t, c.IsOpen())
	require.Nil(t, c.Cause())
	require.Equal(t, begun.Add(time.Minute), c.ThrottledUntil())
	require.True(t, fail(t, c, toOpen))
}

// In any order of events, the circuit returns the time at which the next call may begin, and a call that
// then succeeds closes it.
func TestACircuitNeverBlocksForever(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, now := circuit(settings.Breaker{MaxPause: time.Second}), begun
		key := rapid.IntRange(0, 2*toOpen)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { require.Equal(t, c.IsOpen(), c.Cause() != nil) },
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			},
			"delivered":   func(*rapid.T) { c.Delivered() },
			"answered":    func(*rapid.T) { c.Answered() },
			"unavailable": func(*rapid.T) { c.Unavailable(now, errRefused) },
			"refused":     func(t *rapid.T) { c.Refused(now, errBad) },
			"throttled":   func(*rapid.T) { c.Throttle(now.Add(time.Second), now, nil) },
			"failed": func(t *rapid.T) {
				spent, opened := c.Failed(now, fmt.Sprint(key.Draw(t, "key")), err500)
				require.True(t, spent || !opened, "the failure that opened it spent an attempt")
			},
			"begin": func(*rapid.T) {
				if c.Limit(1, now) > 0 {
					c.Begin()
				}
			},
		})
		if c.Limit(16, now) == 0 {
			require.True(t, c.Next().After(now), "it has a time for the next call")
			now = c.Next()
		}
		require.Positive(t, c.Limit(16, now))
		c.Begin()
		require.Equal(t, c.IsOpen(), c.Delivered())
		require.Equal(t, 16, c.Limit(16, now))
	})
}

func TestAPostponementIsAboutAsLongAsTheOutage(t *testing.T) {
	t.Parallel()
	chance := 0.5
	c := policy.NewCircuitBy(settings.Breaker{}.WithDefaults(), func() float64 { return chance })
	require.Equal(t, 500*time.Millisecond, c.Postponement(c.OpenSince(), begun), "the circuit is closed")
	c.Unavailable(begun, errRefused)
	require.Equal(t, 100*time.Millisecond, c.Next().Sub(begun), "without jitter")
	require.Equal(t, 100*time.Millisecond+(25*time.Millisecond+time.Second)/2, c.Postponement(c.OpenSince(), begun))
	require.Equal(t, time.Minute+(15*time.Second+time.Second)/2, c.Postponement(c.OpenSince(), begun.Add(time.Minute)))
	chance = 0
	require.Equal(t, 5*time.Minute, c.Postponement(c.OpenSince(), begun.Add(time.Hour)))
}
