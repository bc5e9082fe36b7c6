package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheLongestTimeOfRetriesIsTheSumOfTheirPauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retry Retry
		want  time.Duration
	}{
		"one attempt":                 {Retry{MaxAttempts: 1, Initial: time.Hour, Max: time.Hour}, 0},
		"growing":                     {Retry{MaxAttempts: 4, Initial: time.Second, Max: time.Hour}, 7 * time.Second * 6 / 5},
		"bounded":                     {Retry{MaxAttempts: 5, Initial: time.Second, Max: 3 * time.Second}, 9 * time.Second * 6 / 5},
		"even":                        {Retry{MaxAttempts: 1_000_000, Initial: time.Second, Max: time.Second}, 999_999 * time.Second * 6 / 5},
		"with jitter":                 {Retry{MaxAttempts: 2, Initial: 10 * time.Second, Max: time.Hour}, 12 * time.Second},
		"with a maximum age":          {Retry{MaxAttempts: 100, Initial: time.Hour, Max: time.Hour, MaxAge: time.Minute}, time.Minute * 6 / 5},
		"without a limit of attempts": {Retry{}.WithDefaults(), 24 * time.Hour * 6 / 5},
		"of a schedule":               {Retry{Pauses: []time.Duration{time.Second, time.Hour}}.WithDefaults(), 3601 * time.Second * 6 / 5},
		"a schedule for one type":     {Retry{MaxAttempts: 1, Initial: time.Second, Types: map[string]Retry{"a": {Pauses: []time.Duration{time.Hour}}}}, 72 * time.Minute},
		"longer for one type":         {Retry{MaxAttempts: 1, Initial: time.Second, Max: time.Second, Types: map[string]Retry{"a": {MaxAttempts: 3}}}, 2 * time.Second * 6 / 5},
	} {
		require.InDelta(t, c.want, c.retry.Longest(), 1e3, name)
	}
	forEver := Retry{MaxAttempts: 1 << 62, Initial: time.Hour, Max: 1 << 62}
	require.Greater(t, forEver.Longest(), 1000*time.Hour, "without overflow")
}
