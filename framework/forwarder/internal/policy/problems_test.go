package policy_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// problems returns the problems of settings, one per line.
func problems(at string, s policy.Setting) []string {
	var p policy.Problems
	p.Check(at, s)
	if p.Err() == nil {
		return nil
	}
	return strings.Split(p.Err().Error(), "\n")
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	var p policy.Problems
	require.NoError(t, p.Err())
	p.Require(true, "all is well")
	require.NoError(t, p.Err())
	missing := errors.New("it is missing")
	p.Require(false, "lanes is %d", 0)
	p.Add(missing)
	require.ErrorIs(t, p.Err(), policy.ErrConfig)
	require.ErrorIs(t, p.Err(), missing)
	require.EqualError(t, p.Err(), "invalid forwarder configuration: lanes is 0\ninvalid forwarder configuration: it is missing")
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good := policy.Retry{}.WithDefaults()
	for name, c := range map[string]struct {
		settings policy.Setting
		problems []string
	}{
		"threshold": {policy.Parallelism{Threshold: 65_537, Above: policy.AboveBounded}, []string{"x.threshold is 65537: use 1 to 65536"}},
		"above":     {policy.Parallelism{Threshold: 1, Above: "never"}, []string{`x.above is "never": use bounded or sequential`}},
		"on dead":   {policy.OnDead("panic"), []string{`x is "panic": use continue or halt`}},
		"rate":      {policy.Rate{Events: math.Inf(1), Per: time.Second}, []string{"x is +Inf in 1s, burst 0: use more than 0, and a burst of at least 1"}},
		"breaker":   {policy.Breaker{MaxPause: time.Millisecond}, []string{"x.max_pause is 1ms: use at least 100ms"}},
		"retry": {policy.Retry{MaxAttempts: -1, Initial: time.Hour, Max: time.Minute, MaxAge: -1}, []string{
			"x.max_attempts is -1: use at least 1", "x.max is 1m0s, less than initial 1h0m0s",
			"x.max_age is -1ns: use more than 0, or leave it out",
		}},
		"a bad retry, reported once": {policy.Retry{MaxAttempts: -1, Initial: 1, Max: 1, Types: map[string]policy.Retry{"t": {}}}, []string{
			"x.max_attempts is -1: use at least 1",
		}},
		"types of a retry": {policy.Retry{MaxAttempts: 1, Initial: good.Initial, Max: good.Max, Types: map[string]policy.Retry{
			"a": {MaxAttempts: -2}, "b": {Types: map[string]policy.Retry{"c": {}}}, "b c": {},
		}}, []string{
			"x.types.a.max_attempts is -2: use at least 1", "x.types.b.types: a policy for some types cannot have types", "x.types.b c: ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := problems("x", c.settings)
			require.Len(t, found, len(c.problems))
			for i, problem := range c.problems {
				require.Contains(t, found[i], "invalid forwarder configuration: "+problem)
			}
		})
	}
}

func TestTheDefaultsOfZeroSettingsAreValid(t *testing.T) {
	t.Parallel()
	require.Empty(t, problems("x", policy.Parallelism{}.WithDefaults()))
	require.Empty(t, problems("x", policy.Breaker{}.WithDefaults()))
	require.Empty(t, problems("x", policy.Rate{}), "no limit")
	require.Equal(t, policy.Parallelism{Threshold: 16, Above: policy.AboveBounded}, policy.Parallelism{}.WithDefaults())
	set := policy.Parallelism{Threshold: 2, Above: policy.AboveSequential}
	require.Equal(t, set, set.WithDefaults())
}

func TestABacklogAboveTheThresholdHasItsOwnRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		above          policy.Above
		pending, limit int
	}{
		{policy.AboveBounded, 0, 4}, {policy.AboveBounded, 4, 4}, {policy.AboveBounded, 5, 4}, {policy.AboveBounded, 5000, 4},
		{policy.AboveSequential, 0, 4}, {policy.AboveSequential, 4, 4}, {policy.AboveSequential, 5, 1}, {policy.AboveSequential, 5000, 1},
	} {
		require.Equal(t, c.limit, policy.Parallelism{Threshold: 4, Above: c.above}.Limit(c.pending), "%s, %d pending", c.above, c.pending)
	}
}
