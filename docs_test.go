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
	// link is one to a file of the project, or to a section of it or of the page itself.
	link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	// heading is that of a section, and dropped what its anchor has not.
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those of a page's sections.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	found := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(string(text), -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksInTheDocumentationLeadToFilesAndSections(t *testing.T) {
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
			to := page
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(page), match[1])
			}
			_, err := os.Stat(to)
			require.NoError(t, err, page)
			if match[2] != "" && strings.HasSuffix(to, ".md") {
				require.True(t, anchors(t, to)[match[2]], "%s leads to %s#%s", page, to, match[2])
			}
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
