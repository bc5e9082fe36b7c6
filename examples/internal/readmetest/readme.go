// Package readmetest helps the tests of the examples to compare a program's output with its README.md.
package readmetest

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Writer is a strings.Builder to which several goroutines can write at once. Read it only after
// they have ended.
type Writer struct {
	mu sync.Mutex
	strings.Builder
}

func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Builder.Write(p)
}

// Output returns what README.md in the working directory shows below the line "$ command", up to
// the next line that begins with "$ ", or to the end of the block.
func Output(t testing.TB, command string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?ms)^\\$ " + regexp.QuoteMeta(command) + "\n(.*?)^(?:\\$ |```)").FindSubmatch(text)
	require.NotNil(t, found, "README.md has no block with the line $ %s", command)
	return string(found[1])
}

// Lines sends each line of a program's output, with its end.
func Lines(from io.Reader) <-chan string {
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(from); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	return lines
}
