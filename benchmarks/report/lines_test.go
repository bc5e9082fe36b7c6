package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesAreDrawnWithTheirNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.svg")
	l := Lines{Title: "What came", X: "hours", Y: "letters/s", LogX: true, Lines: []Line{
		{Name: "by post", Points: []Point{{1, 2}, {10, 4000}}}, {Name: "by hand", Points: []Point{{1, 1}, {100, 1}}, Dashed: true}, {Name: "by nobody"},
	}}
	require.NoError(t, DrawLines(l, path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, text := range []string{"What came", "hours", "letters/s", "by post", "by hand", "4,000", ">100<"} {
		require.Contains(t, string(content), text)
	}
	require.NotContains(t, string(content), "by nobody")
	require.NotContains(t, string(content), "font-family:Liberation Sans;", "text has other fonts of the same width")
}

func TestPointsThatAnAxisCannotShowAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.svg")
	require.ErrorContains(t, DrawLines(Lines{Title: "Nothing"}, path), "Nothing: there are no points")
	none := Lines{Title: "Zero", LogY: true, Lines: []Line{{Name: "a line", Points: []Point{{1, 0}}}}}
	require.ErrorContains(t, DrawLines(none, path), "a line: a logarithmic axis has no place for (1, 0)")
	require.NoFileExists(t, path)
}
