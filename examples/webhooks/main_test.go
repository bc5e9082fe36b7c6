package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachOrderIsBookedOnceAndNoForgery(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `refused: unable to verify payload, err: no matching signature found
o-1: booked
o-1: the answer gets lost
o-1: known already
o-2: booked
the partner changes its secret
o-3: booked
`, out.String())
}
