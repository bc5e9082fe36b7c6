package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachStepIsDoneOnceAndKnowsWhereItBegan(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	for _, line := range []string{
		"o-1 paid (it began with order-1)\n",
		"o-1 shipped, its customer knows (it began with order-1)\n",
		"o-2 paid, and the connection is lost: all of it is rolled back\n",
		"o-2 paid (it began with order-2)\n",
		"o-2 shipped, its customer knows (it began with order-2)\n",
	} {
		require.Equal(t, 1, strings.Count(out.String(), line), "%s in\n%s", line, out.String())
	}
}
