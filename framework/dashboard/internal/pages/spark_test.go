package pages

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASparkLineReachesFromTheBottomToTheTop(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0.0,39.0 120.0,20.5 240.0,2.0", sparkLine([]float64{0, 5, 10}, 10))
	require.Equal(t, "0.0,39.0 240.0,39.0", sparkLine([]float64{0, 0}, 0))
	require.Equal(t, "0.0,2.0", sparkLine([]float64{7}, 7))
	require.Empty(t, sparkLine(nil, 0))
}
