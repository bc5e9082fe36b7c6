package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionsInTheWriteAheadLogAreParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]lsn{"0/0": 0, "0/16B3748": 0x16B3748, "1A/FFFFFFFF": 0x1AFFFFFFFF, "FFFFFFFF/FFFFFFFF": 1<<64 - 1} {
		got, err := parseLSN(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "0", "0/", "/0", "0/1/2", "0/x", "0/100000000", "-1/0"} {
		_, err := parseLSN(text)
		require.Error(t, err, text)
	}
}

// A commit takes at least 40 bytes, so a position less than that behind the beginning of a page is in the
// header of the page.
func TestAReplayPositionInAPageHeaderReachesTheNextRecord(t *testing.T) {
	t.Parallel()
	const page, begin = 8192, 5 * 8192
	for name, c := range map[string]struct {
		replayed, at lsn
		reached      bool
	}{
		"the same":                      {begin + 100, begin + 100, true},
		"farther":                       {begin + 108, begin + 100, true},
		"a record before":               {begin + 60, begin + 100, false},
		"the page before":               {begin, begin + 24, true},
		"the file before":               {begin, begin + 40, true},
		"a record behind the page":      {begin, begin + 48, false},
		"a header's length in the page": {begin + 8, begin + 32, false},
		"the end of another page":       {begin - page, begin, false},
		"nothing replayed":              {0, begin, false},
	} {
		require.Equal(t, c.reached, c.replayed.reaches(c.at, page), name)
	}
}
