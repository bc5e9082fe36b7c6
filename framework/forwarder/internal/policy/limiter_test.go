package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/settings"
)

// begun is when time starts in these tests.
var begun = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestWithoutARateEverythingMayBegin(t *testing.T) {
	t.Parallel()
	l := policy.NewLimiter(settings.Rate{})
	l.Share(0.5, begun)
	require.True(t, l.Has(1000, begun))
	admitted, until := l.Admit(1000, begun)
	require.Equal(t, 1000, admitted)
	require.Zero(t, until)
}

func TestNothingBeginsBeforeAForwarderHasAShare(t *testing.T) {
	t.Parallel()
	l := policy.NewLimiter(settings.Rate{Events: 10, Per: time.Second})
	l.Admit(1, begun) // the bucket of no share holds one
	admitted, until := l.Admit(1, begun.Add(time.Minute))
	require.Zero(t, admitted)
	require.Equal(t, begun.Add(time.Minute+time.Hour), until)
	l.Share(1, begun.Add(2*time.Minute))
	admitted, _ = l.Admit(100, begun.Add(2*time.Minute))
	require.Equal(t, 10, admitted, "it starts with a full burst")
}

func TestALimiterKeepsItsShareOfTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := settings.Rate{
			Events: float64(rapid.IntRange(1, 200).Draw(t, "events")),
			Per:    rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "per"),
			Burst:  rapid.IntRange(0, 50).Draw(t, "burst"),
		}
		part := rapid.SampledFrom([]float64{1, 0.5, 0.25}).Draw(t, "part")
		perSecond := r.Events / r.Per.Seconds() * part
		burst := perSecond
		if r.Burst > 0 {
			burst = float64(r.Burst) * part
		}
		l := policy.NewLimiter(r)
		l.Share(part, begun)
		n, now := 0, begun
		for end := begun.Add(2 * time.Minute); ; {
			admitted, until := l.Admit(1, now)
			if n += admitted; admitted > 0 {
				continue
			}
			require.True(t, until.After(now), "it returns a time")
			if until.After(end) {
				break
			}
			now = until.Add(time.Microsecond) // tokens are counted in fractions
			require.True(t, l.Has(1, now), "a delivery may begin at the returned time")
		}
		require.InDelta(t, 120*perSecond+max(1, burst), n, 2+0.01*float64(n))
	})
}

func TestAChangeOfTheShareKeepsTheTokens(t *testing.T) {
	t.Parallel()
	l := policy.NewLimiter(settings.Rate{Events: 10, Per: time.Second, Burst: 8})
	l.Share(1, begun)
	admitted, _ := l.Admit(100, begun)
	require.Equal(t, 8, admitted)
	l.Share(0.5, begun)
	admitted, until := l.Admit(1, begun)
	require.Zero(t, admitted, "another share does not add a burst")
	require.Equal(t, begun.Add(200*time.Millisecond), until)
	require.True(t, l.Has(100, begun.Add(time.Second)), "at most a full burst")
	require.False(t, l.Has(100, begun.Add(500*time.Millisecond)))
}
