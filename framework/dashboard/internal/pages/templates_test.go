package pages

import (
	"bytes"
	"io/fs"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each class of the style sheet is in a template.
func TestEveryClassOfTheStyleIsUsed(t *testing.T) {
	t.Parallel()
	style, err := files.ReadFile("static/style.css")
	require.NoError(t, err)
	style = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(style, nil)
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	var pages bytes.Buffer
	for _, name := range names {
		page, err := files.ReadFile(name)
		require.NoError(t, err)
		pages.Write(page)
	}
	for _, class := range regexp.MustCompile(`\.([a-z][a-z-]*)`).FindAllSubmatch(style, -1) {
		require.Regexp(t, `class="[^>]*\b`+string(class[1])+`\b`, pages.String(), "no page uses .%s", class[1])
	}
}

func TestEachPageHasADifferentKey(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, link := range navigation {
		require.False(t, slices.Contains(keys, link.Key()), "%s leads to two pages", link.Key())
		keys = append(keys, link.Key())
	}
}
