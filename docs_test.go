package waybill_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compiled is a block of a page with the file that it is taken from.
var compiled = regexp.MustCompile("(?s)<!-- (\\S+\\.go) -->\n+```go\n(.*?)\n```")

func TestCodeInTheDocumentationIsCodeThatCompiles(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range compiled.FindAllStringSubmatch(string(text), -1) {
			source, err := os.ReadFile(match[1])
			require.NoError(t, err, page)
			require.Contains(t, unindented(string(source)), unindented(match[2]), "%s: copy the block from %s", page, match[1])
			found++
		}
	}
	require.NotZero(t, found)
}

// unindented is text without what its lines begin with.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}
