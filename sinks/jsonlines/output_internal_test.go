package jsonlines

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesThatAreRemovedDuringAWriteAreWrittenAgain(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"removed":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orders.jsonl")
			f := &file{path: path}
			require.NoError(t, f.open())
			_, err := f.write([]byte("one\n"))
			require.NoError(t, err)
			require.NoError(t, f.open())
			require.NoError(t, remove(path)) // between the look at the path and the write
			_, err = f.write([]byte("two\n"))
			require.NoError(t, err)
			require.NoError(t, f.close())
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(text), "two\n")
			require.NotContains(t, string(text), "\x00")
		})
	}
}
