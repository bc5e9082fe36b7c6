package store_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestChunksAreCutByRowsAndByBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes []int
		want  [][]int
	}{
		"none":                    {nil, nil},
		"all in one":              {[]int{1, 2, 3}, [][]int{{1, 2, 3}}},
		"by rows":                 {[]int{1, 1, 1, 1}, [][]int{{1, 1, 1}, {1}}},
		"by bytes":                {[]int{5, 5, 1, 9}, [][]int{{5, 5}, {1, 9}}},
		"a row that is too large": {[]int{1, 20, 1}, [][]int{{1}, {20}, {1}}},
		"only too large ones":     {[]int{20, 20}, [][]int{{20}, {20}}},
	} {
		got := slices.Collect(store.Chunks(c.sizes, 3, 10, func(size *int) int { return *size }))
		require.Equal(t, c.want, got, name)
	}
}
