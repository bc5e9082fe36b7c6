package settings_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/settings"
)

// problems returns the problems of settings, one per line.
func problems(at string, s settings.Setting) []string {
	var p settings.Problems
	p.Check(at, s)
	if p.Err() == nil {
		return nil
	}
	return strings.Split(p.Err().Error(), "\n")
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	var p settings.Problems
	require.NoError(t, p.Err())
	p.Require(true, "all is well")
	require.NoError(t, p.Err())
	missing := errors.New("it is missing")
	p.Require(false, "lanes is %d", 0)
	p.Add(missing)
	require.ErrorIs(t, p.Err(), settings.ErrConfig)
	require.ErrorIs(t, p.Err(), missing)
	require.EqualError(t, p.Err(), "invalid forwarder configuration: lanes is 0\ninvalid forwarder configuration: it is missing")
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good := settings.Retry{}.WithDefaults()
	for name, c := range map[string]struct {
		settings settings.Setting
		problems []string
	}{
		"threshold": {settings.Parallelism{Threshold: 65_537, Above: settings.AboveBounded}, []string{"x.threshold is 65537: use 1 to 65536"}},
		"above":     {settings.Parallelism{Threshold: 1, Above: "never"}, []string{`x.above is "never": use bounded or sequential`}},
		"on dead":   {settings.OnDead("panic"), []string{`x is "panic": use continue or halt`}},
		"rate":      {settings.Rate{Events: math.Inf(1), Per: time.Second}, []string{"x is +Inf in 1s, burst 0: use more than 0, and a burst of at least 1"}},
		"breaker":   {settings.Breaker{MaxPause: time.Millisecond}, []string{"x.max_pause is 1ms: use at least 100ms"}},
		"retry": {settings.Retry{MaxAttempts: -1, Initial: time.Hour, Max: time.Minute, MaxAge: -1}, []string{
			"x.max_attempts is -1: use at least 1", "x.max is 1m0s, less than initial 1h0m0s",
			"x.max_age is -1ns: use more than 0, or leave it out",
		}},
		"pauses": {settings.Retry{Pauses: []time.Duration{time.Minute, 0}, MaxAttempts: 3, Max: time.Hour}.WithDefaults(), []string{
			"x.pauses excludes max_attempts, max, which is for pauses that double: leave out either", "x.pauses[1] is 0s: use more than 0",
		}},
		"no pauses": {settings.Retry{Pauses: []time.Duration{}}.WithDefaults(), []string{"x.pauses is empty: name at least one, or leave it out"}},
		"pauses of a type": {settings.Retry{Types: map[string]settings.Retry{"a": {Pauses: []time.Duration{time.Second}, Initial: 1}}}.WithDefaults(), []string{
			"x.types.a.pauses excludes initial, which is for pauses that double: leave out either",
		}},
		"a bad retry, reported once": {settings.Retry{MaxAttempts: -1, Initial: 1, Max: 1, Types: map[string]settings.Retry{"t": {}}}, []string{
			"x.max_attempts is -1: use at least 1",
		}},
		"types of a retry": {settings.Retry{MaxAttempts: 1, Initial: good.Initial, Max: good.Max, Types: map[string]settings.Retry{
			"a": {MaxAttempts: -2}, "b": {Types: map[string]settings.Retry{"c": {}}}, "b c": {},
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
	require.Empty(t, problems("x", settings.Parallelism{}.WithDefaults()))
	require.Empty(t, problems("x", settings.Breaker{}.WithDefaults()))
	require.Empty(t, problems("x", settings.Rate{}), "no limit")
	require.Equal(t, settings.Parallelism{Threshold: 16, Above: settings.AboveBounded}, settings.Parallelism{}.WithDefaults())
	set := settings.Parallelism{Threshold: 2, Above: settings.AboveSequential}
	require.Equal(t, set, set.WithDefaults())
}

func TestABacklogAboveTheThresholdHasItsOwnRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		above          settings.Above
		pending, limit int
	}{
		{settings.AboveBounded, 0, 4}, {settings.AboveBounded, 4, 4}, {settings.AboveBounded, 5, 4}, {settings.AboveBounded, 5000, 4},
		{settings.AboveSequential, 0, 4}, {settings.AboveSequential, 4, 4}, {settings.AboveSequential, 5, 1}, {settings.AboveSequential, 5000, 1},
	} {
		require.Equal(t, c.limit, settings.Parallelism{Threshold: 4, Above: c.above}.Limit(c.pending), "%s, %d pending", c.above, c.pending)
	}
}

func TestParallelismIsFixedOrAdaptive(t *testing.T) {
	t.Parallel()
	adaptive := settings.Parallelism{Adaptive: settings.Adaptive{Max: 64}}.WithDefaults()
	require.Equal(t, settings.Parallelism{Above: settings.AboveBounded, Adaptive: settings.Adaptive{Min: 1, Max: 64}}, adaptive)
	require.Equal(t, adaptive, adaptive.WithDefaults())
	require.Equal(t, 64, adaptive.Most())
	require.Empty(t, problems("x", adaptive))
	require.Equal(t, settings.Adaptive{Min: 600, Max: 600}, settings.Parallelism{Adaptive: settings.Adaptive{Min: 600}}.WithDefaults().Adaptive)
	require.Len(t, problems("x", settings.Parallelism{
		Threshold: 4, Above: settings.AboveSequential, Adaptive: settings.Adaptive{Min: 9, Max: 8},
	}.WithDefaults()), 3)
}
