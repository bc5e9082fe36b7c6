// Package readmetest has the tests of the examples compare their README.md with what the
// programs print.
package readmetest

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Writer keeps what a program writes from several goroutines at once. Read it once they have
// ended.
type Writer struct {
	mu sync.Mutex
	strings.Builder
}

// Write appends.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Builder.Write(p)
}

// Output is what README.md in the working directory shows below the line "$ command", up to
// the next such line or the end of the block.
func Output(t testing.TB, command string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?ms)^\\$ " + regexp.QuoteMeta(command) + "\n(.*?)^(?:\\$ |```)").FindSubmatch(text)
	require.NotNil(t, found, "README.md has no block with the line $ %s", command)
	return string(found[1])
}
