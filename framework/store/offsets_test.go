package store_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/store"
)

func ExampleEncodeOffsets() {
	fmt.Println(store.EncodeOffsets(store.OffsetRanges(5, 6, 7, 8, 9, 12)))
	// Output: 5-9,12
}

func TestOffsetsHaveOneText(t *testing.T) {
	t.Parallel()
	for text, offsets := range map[string][]int64{
		"":                    nil,
		"7":                   {7},
		"1-2":                 {1, 2},
		"5-9,12":              {5, 6, 7, 8, 9, 12},
		"1,3,5":               {1, 3, 5},
		"9223372036854775807": {math.MaxInt64},
		"9223372036854775806-9223372036854775807": {math.MaxInt64 - 1, math.MaxInt64},
	} {
		require.Equal(t, text, store.EncodeOffsets(store.OffsetRanges(offsets...)))
		decoded, err := store.DecodeOffsets(text)
		require.NoError(t, err, text)
		require.Equal(t, store.OffsetRanges(offsets...), decoded, text)
	}
}

func TestDamagedOffsetsAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		" ", ",", "1,", ",1", "1,,2", "a", "1-", "-1", "-", "0", "0-1", "01", "+1", "1 ", "1-1", "2-1", "3,2", "2,2", "1-3,3",
		"1-2-3", "9223372036854775808",
	} {
		ranges, err := store.DecodeOffsets(text)
		require.ErrorIs(t, err, store.ErrPosition, "%q gave %v", text, ranges)
	}
}

func TestEncodedOffsetsAreDecoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Small numbers make runs of neighbours common.
		offsets := rapid.SliceOfNDistinct(rapid.Int64Range(1, 60), 0, 40, rapid.ID[int64]).Draw(t, "offsets")
		slices.Sort(offsets)
		ranges := store.OffsetRanges(offsets...)
		decoded, err := store.DecodeOffsets(store.EncodeOffsets(ranges))
		if err != nil {
			t.Fatal(err)
		}
		for offset := range int64(62) {
			if store.ContainsOffset(ranges, offset) != slices.Contains(offsets, offset) {
				t.Fatalf("%v are not what %v have", ranges, offsets)
			}
		}
		if !slices.Equal(decoded, ranges) || store.CountOffsets(ranges) != int64(len(offsets)) {
			t.Fatalf("%v came back as %v", offsets, decoded)
		}
	})
}

func FuzzDecodeOffsets(f *testing.F) {
	for _, text := range []string{"", "1", "5-9,12", "1,2,3", "1-2,3-4", "0", "-5", "9223372036854775807", "1-99999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		offsets, err := store.DecodeOffsets(text)
		if err != nil {
			require.ErrorIs(t, err, store.ErrPosition)
			return
		}
		for i := 1; i < len(offsets); i++ {
			require.Greater(t, offsets[i].First, offsets[i-1].Last)
		}
		again, err := store.DecodeOffsets(store.EncodeOffsets(offsets))
		require.NoError(t, err)
		require.Equal(t, offsets, again)
	})
}
