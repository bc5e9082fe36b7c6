package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachOrderIsReservedOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.ElementsMatch(t, []string{
		"mailing: welcome, Ada",
		"mailing: Ada, thank you for o-1",
		"mailing: Ada, thank you for o-2",
		"mailing: Ada, thank you for o-3",
		"warehouse: o-1: a bad moment",
		"warehouse: o-1: reserved",
		"warehouse: o-2: reserved, and stumbled on the way back",
		"warehouse: o-2: reserved before",
		"warehouse: o-3: not ours to sell",
	}, lines)
}
