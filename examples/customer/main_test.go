package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatHappensToACustomerReachesThoseConcernedOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, behind, found := strings.Cut(string(readme), "```text\n")
	require.True(t, found)
	want, _, _ := strings.Cut(behind, "```")
	require.Equal(t, want, out.String(), "README.md shows the output")
}
