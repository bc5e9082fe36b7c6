package settings_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/settings"
)

func TestThePolicyOfATypeCountsBeforeThoseOfPatterns(t *testing.T) {
	t.Parallel()
	retry := settings.Retry{
		MaxAttempts: 2, Initial: time.Second,
		Types: map[string]settings.Retry{
			"*":              {MaxAttempts: 3},
			"order.*":        {MaxAttempts: 4},
			"order.a":        {MaxAttempts: 5}, // as long as the other pattern
			"order.placed.*": {MaxAttempts: 6},
			"order.placed":   {MaxAttempts: 7},
		},
	}.WithDefaults()
	for range 20 { // the order of a map is random
		for typ, want := range map[string]struct {
			attempts int
			from     string
		}{
			"mail": {3, "*"}, "order.b": {4, "order.*"}, "order.a": {5, "order.a"},
			"order.placed.now": {6, "order.placed.*"}, "order.placed": {7, "order.placed"},
		} {
			got, from := retry.For(typ)
			require.Equal(t, want.attempts, got.MaxAttempts, typ)
			require.Equal(t, want.from, from, typ)
			require.Equal(t, settings.DefaultMax, got.Max, "a field that it does not set has its default")
		}
	}
	delete(retry.Types, "*")
	got, from := retry.For("mail")
	require.Equal(t, 2, got.MaxAttempts)
	require.Empty(t, from, "the sink's policy")
}

func TestAPolicyOfATypeInheritsTheFieldsThatItDoesNotSet(t *testing.T) {
	t.Parallel()
	usual := settings.Retry{
		MaxAttempts: 3, Initial: time.Minute, Max: 20 * time.Minute, MaxAge: 24 * time.Hour,
		Types: map[string]settings.Retry{
			"quick": {Initial: time.Second},
			"slow":  {Initial: time.Hour}, // longer than the usual maximum
			"stale": {MaxAge: 2 * time.Minute, MaxAttempts: 4, Max: time.Hour},
		},
	}
	for typ, want := range map[string]settings.Retry{
		"quick": {MaxAttempts: 3, Initial: time.Second, Max: 20 * time.Minute, MaxAge: 24 * time.Hour},
		"slow":  {MaxAttempts: 3, Initial: time.Hour, Max: time.Hour, MaxAge: 24 * time.Hour},
		"stale": {MaxAttempts: 4, Initial: time.Minute, Max: time.Hour, MaxAge: 2 * time.Minute},
		"usual": usual,
	} {
		got, _ := usual.For(typ)
		require.Equal(t, want, got, typ)
	}
}

func TestPausesAreASchedule(t *testing.T) {
	t.Parallel()
	r := settings.Retry{Pauses: []time.Duration{5 * time.Second, 5 * time.Minute, 2 * time.Hour}}.WithDefaults()
	require.Empty(t, problems("retry", r))
	require.Equal(t, 4, r.Attempts())
	for i, pause := range r.Pauses {
		require.False(t, r.Exhausted(i+1))
		require.Equal(t, pause, r.PauseBy(i+1, func() float64 { return 0.5 }))
		require.InEpsilon(t, 0.8*float64(pause), r.PauseBy(i+1, func() float64 { return 0 }), 1e-6, "it varies by a fifth")
	}
	require.True(t, r.Exhausted(4), "after the last pause it has failed once more")
	require.Equal(t, 2*time.Hour, r.PauseBy(100, func() float64 { return 0.5 }), "of a delivery that had more attempts before")
	require.Equal(t, 5*time.Second, r.PauseUnknown(time.Second))
	require.Equal(t, 20*time.Second, r.PauseUnknown(20*time.Second))
	require.Equal(t, time.Minute, r.PauseUnknown(time.Hour))

	copied := r.Clone()
	copied.Pauses[0] = time.Hour
	require.Equal(t, 5*time.Second, r.Pauses[0])
}

func TestATypeHasEitherPausesOrDoublingOnes(t *testing.T) {
	t.Parallel()
	schedule, quick := []time.Duration{time.Minute, time.Hour}, []time.Duration{time.Second}
	own := map[string]settings.Retry{"scheduled": {Pauses: quick}, "doubling": {MaxAttempts: 3}, "usual": {}}
	for name, c := range map[string]struct {
		retry settings.Retry
		want  map[string]settings.Retry
	}{
		"beside a schedule": {settings.Retry{Pauses: schedule, Types: own}, map[string]settings.Retry{
			"scheduled": {Pauses: quick}, "doubling": settings.Retry{MaxAttempts: 3}.WithDefaults(), "usual": {Pauses: schedule},
		}},
		"beside doubling pauses": {settings.Retry{Initial: time.Minute, Types: own}, map[string]settings.Retry{
			"scheduled": {Pauses: quick},
			"doubling":  {MaxAttempts: 3, MaxAge: settings.DefaultMaxAge, Initial: time.Minute, Max: settings.DefaultMax},
			"usual":     {MaxAge: settings.DefaultMaxAge, Initial: time.Minute, Max: settings.DefaultMax},
		}},
	} {
		retry := c.retry.WithDefaults()
		require.Empty(t, problems("retry", retry), name)
		for typ, want := range c.want {
			got, from := retry.For(typ)
			require.Equal(t, want, got, "%s, %s", name, typ)
			require.Equal(t, typ, from)
		}
	}
}

func TestTheDefaultsOfARetryAreValid(t *testing.T) {
	t.Parallel()
	require.Empty(t, problems("retry", settings.Retry{}.WithDefaults()))
	require.Empty(t, problems("retry", settings.Retry{Initial: time.Hour}.WithDefaults()), "longer than the default maximum")
}

func TestADeliveryIsRetriedForADayUnlessItsAttemptsAreLimited(t *testing.T) {
	t.Parallel()
	day := settings.Retry{}.WithDefaults()
	attempts, pauses := 1, time.Duration(0)
	for ; !day.Exhausted(attempts); attempts++ {
		pauses += day.PauseBy(attempts, func() float64 { return 0.5 })
	}
	require.Greater(t, pauses+day.Max, 24*time.Hour)
	require.LessOrEqual(t, pauses, 24*time.Hour)
	quick := settings.Retry{Initial: 10 * time.Millisecond, Max: time.Second}.WithDefaults()
	require.False(t, quick.Exhausted(86_000), "however short its pauses are")
	require.True(t, quick.Exhausted(87_000))

	limited := settings.Retry{MaxAttempts: 3, Initial: 48 * time.Hour}.WithDefaults()
	require.False(t, limited.Exhausted(2), "a limit of attempts replaces that of time")
	require.True(t, limited.Exhausted(3))
	rare := settings.Retry{Types: map[string]settings.Retry{"rare": {Initial: 48 * time.Hour}}}.WithDefaults()
	own, _ := rare.For("rare")
	require.False(t, own.Exhausted(1), "each delivery is retried once")
}

func TestPausesDoubleUpToTheMaximum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		retry := settings.Retry{
			Initial: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "initial")),
		}
		retry.Max = retry.Initial * time.Duration(rapid.IntRange(1, 100).Draw(t, "max"))
		expected := float64(retry.Initial)
		for attempts := 1; attempts < 10; attempts++ {
			require.InDelta(t, expected, retry.Pause(attempts), 0.2*expected+float64(attempts), "after %d attempts", attempts)
			expected = min(2*expected, float64(retry.Max))
		}
		require.LessOrEqual(t, retry.Pause(1<<40), 2*retry.Max, "for any number of attempts")
	})
}

func TestPausesUseTheCallersRandomNumbers(t *testing.T) {
	t.Parallel()
	r := settings.Retry{Initial: time.Second, Max: 5 * time.Second}
	for chance, share := range map[float64]float64{0: 0.8, 0.5: 1, 0.75: 1.1} {
		always := func() float64 { return chance }
		for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			require.InEpsilon(t, share*float64(pause), r.PauseBy(i+1, always), 1e-6)
		}
	}
}
