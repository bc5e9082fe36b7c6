package settings_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/settings"
)

func TestARateIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]settings.Rate{
		"50/s":               {Events: 50, Per: time.Second},
		"100/m":              {Events: 100, Per: time.Minute},
		"1000/h":             {Events: 1000, Per: time.Hour},
		"0.5/s":              {Events: 0.5, Per: time.Second},
		"50/s, burst 100":    {Events: 50, Per: time.Second, Burst: 100},
		" 50 / s ,burst  7 ": {Events: 50, Per: time.Second, Burst: 7},
	} {
		got, err := settings.ParseRate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "50", "/s", "50/", "50/d", "50/ms", "s/50", "NaN/s", "Inf/s", "50/s burst 100", "50/s, 100", "50/s, burst", "50/s, burst 0", "50/s, burst -1",
		"50/s, burst 1.5", "50/s, bursts 5", "50/s, burst 5, burst 6", "50/s/s",
	} {
		_, err := settings.ParseRate(text)
		require.ErrorContains(t, err, "is not a rate: use 50/s", text)
	}
	for _, text := range []string{"0/s", "-1/s"} {
		_, err := settings.ParseRate(text)
		require.ErrorContains(t, err, "lets nothing through: use more than 0, or pause the sink", text)
	}
	require.Empty(t, settings.Rate{}.String())
	var r settings.Rate
	require.NoError(t, r.UnmarshalText([]byte("5/m")))
	require.Equal(t, "5/m", r.String())
	require.Error(t, r.UnmarshalText([]byte("often")))
}

func TestARateIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := settings.Rate{
			Events: rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64).Draw(t, "events"),
			Per:    rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per"),
			Burst:  rapid.IntRange(0, math.MaxInt).Draw(t, "burst"),
		}
		again, err := settings.ParseRate(r.String())
		require.NoError(t, err, r)
		require.Equal(t, r, again)
	})
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"50/s", "100/m, burst 7", "0x1p-2/h", "1e300/s", "-0/s", "50/s,burst 1", ",", "/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := settings.ParseRate(text)
		if err != nil {
			require.Zero(t, r)
			return
		}
		again, err := settings.ParseRate(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
