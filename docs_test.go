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

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	// link is one to a file of the project, without its anchor.
	link = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)\s]*)?\)`)
)

func TestLinksInTheDocumentationLeadToFiles(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), match[1]))
			require.NoError(t, err, page)
		}
	}
}

func TestEachExampleHasAReadmeAndIsListed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	folders, err := filepath.Glob("examples/*")
	require.NoError(t, err)
	for _, folder := range folders {
		if filepath.Base(folder) == "internal" {
			continue
		}
		require.FileExists(t, filepath.Join(folder, "README.md"))
		line := "\n- [" + filepath.Base(folder) + "](" + filepath.ToSlash(folder) + "): "
		require.True(t, strings.Contains(string(text), line), "README.md does not list %s", folder)
	}
}

// unindented is text without what its lines begin with.
func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}
