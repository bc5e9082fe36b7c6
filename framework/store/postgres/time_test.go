package postgres

import (
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

var writtenTimes = []string{
	"2026-11-21 19:45:18.123456+00",
	"2026-11-21 19:45:18+00",
	"2026-11-21 19:45:18.1+00",
	"2026-01-01 00:30:00.000001+02",
	"2026-12-31 23:30:00-11",
	"2024-02-29 12:00:00+00",
	"0001-01-01 00:00:00+00",
	"2026-11-21 19:45:18.123456+05:30", // from here on not the usual form
	"1890-01-01 12:00:00+01:12:12",
	"12026-11-21 19:45:18+00",
	"0044-03-15 12:00:00+00 BC",
}

func TestTimesAreReadAsLibPQDoes(t *testing.T) {
	t.Parallel()
	for i, text := range writtenTimes {
		want, err := pq.ParseTimestamp(nil, text)
		require.NoError(t, err)
		got, err := parseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want.UTC(), got, text)
		_, usual := parseUsualTime(text)
		require.Equal(t, i < 7, usual, text)
	}
	for _, text := range []string{"", "infinity", "2026-11-21", "2026-11-21T19:45:18+00", "2026-11-21 19:45:18", "2026-11-21 19:45:18.1234567+00", "2026-11-21 19:45:1x+00", "2026-11-21 19:45:18+0x", "2026-11-21 19:45:18.+00:"} {
		_, usual := parseUsualTime(text)
		require.False(t, usual, text)
	}
}

// FuzzTime compares whatever is read at once with what lib/pq makes of it.
func FuzzTime(f *testing.F) {
	for _, text := range writtenTimes {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, usual := parseUsualTime(text)
		want, err := pq.ParseTimestamp(nil, text)
		if !usual || err != nil {
			return
		}
		require.True(t, want.Equal(got), "%q is %s, and not %s", text, want, got)
	})
}

func BenchmarkTime(b *testing.B) {
	for name, read := range map[string]func(string) (time.Time, error){
		"ours": parseTime,
		"pq":   func(text string) (time.Time, error) { return pq.ParseTimestamp(nil, text) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = read(writtenTimes[0])
			}
		})
	}
}
