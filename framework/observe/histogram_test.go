package observe

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The buckets are the same as those of the library's histogram, for any values.
func TestAHistogramEqualsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom([]float64{0, .001, .0025, .5, 1, 2, 60, 61}), rapid.Float64Range(2e-6, 1e5))).Draw(t, "values")
		ours := newHistogram(durationBounds)
		theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: durationBounds, NativeHistogramBucketFactor: 1.1})
		for _, v := range values {
			ours.observe(v)
			theirs.Observe(v)
		}
		var got, want dto.Metric
		require.NoError(t, series{histogram: &ours}.Write(&got))
		require.NoError(t, theirs.Write(&want))
		require.InDelta(t, want.Histogram.GetSampleSum(), got.Histogram.GetSampleSum(), 1e-3)
		require.Equal(t, want.Histogram.GetSampleCount(), got.Histogram.GetSampleCount())
		require.Equal(t, want.Histogram.GetZeroCount(), got.Histogram.GetZeroCount())
		require.Equal(t, want.Histogram.GetSchema(), got.Histogram.GetSchema())
		require.Equal(t, want.Histogram.GetZeroThreshold(), got.Histogram.GetZeroThreshold())
		require.Len(t, got.Histogram.GetBucket(), len(want.Histogram.GetBucket()))
		for i, b := range want.Histogram.GetBucket() {
			require.Equal(t, b.GetCumulativeCount(), got.Histogram.GetBucket()[i].GetCumulativeCount(), b.GetUpperBound())
		}
		require.Equal(t, nativeCounts(want.Histogram), nativeCounts(got.Histogram))
	})
}

// nativeCounts returns the counts of non-empty buckets by number.
func nativeCounts(h *dto.Histogram) map[int32]int64 {
	counts := make(map[int32]int64)
	at, delta, count := int32(0), 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		at += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[delta]
			if delta++; count > 0 {
				counts[at] = count
			}
			at++
		}
	}
	return counts
}

func TestAHistogramCountsValuesOutOfItsRange(t *testing.T) {
	t.Parallel()
	h := newHistogram(durationBounds)
	for _, v := range []float64{-1, 0, 1e-12, time.Duration(1 << 62).Seconds()} {
		h.observe(v)
	}
	require.EqualValues(t, 4, h.count)
	require.EqualValues(t, 2, h.zero)
	require.EqualValues(t, 1, h.native[0])
	require.EqualValues(t, 1, h.native[natives-1])
}
