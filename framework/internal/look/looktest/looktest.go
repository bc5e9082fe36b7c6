// Package looktest compares style sheets with templates.
package looktest

import (
	"bytes"
	"io/fs"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// UsesAll fails unless each class of a style sheet is in one of the templates/*.html of files.
func UsesAll(t *testing.T, style []byte, files fs.FS) {
	t.Helper()
	style = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(style, nil)
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	var pages bytes.Buffer
	for _, name := range names {
		page, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		pages.Write(page)
	}
	for _, class := range regexp.MustCompile(`\.([a-z][a-z-]*)`).FindAllSubmatch(style, -1) {
		require.Regexp(t, `class="[^>]*\b`+string(class[1])+`\b`, pages.String(), "no page uses .%s", class[1])
	}
}
