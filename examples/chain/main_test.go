package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

func TestEachStepIsDoneOnceAndKnowsWhereItBegan(t *testing.T) {
	t.Parallel()
	var out readmetest.Writer
	require.NoError(t, run(t.Context(), &out))
	// The steps of one order are in their order; those of two are not.
	want := readmetest.Output(t, "go run ./examples/chain")
	for _, order := range []string{"o-1", "o-2"} {
		require.Equal(t, linesOf(order, want), linesOf(order, out.String()))
	}
}

func linesOf(order, text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, order) {
			lines = append(lines, line)
		}
	}
	return lines
}
