package jsonlines_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestLinesGoToTheFileAtThePathWhateverOtherProgramsDo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, path string){
		"renamed": func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".1")) },
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"renamed, and a new one created": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".1"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
		"copied and truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"its folder renamed and created again": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		},
		"replaced by a link": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".1"))
			require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path))
		},
	} {
		for _, c := range []jsonlines.Config{{}, {Fsync: true}, {MaxFiles: 1, Compress: true}} {
			t.Run(name, func(t *testing.T) {
				folder := filepath.Join(t.TempDir(), "lines")
				require.NoError(t, os.Mkdir(folder, 0o700))
				c.Path = filepath.Join(folder, "orders.jsonl")
				sink := open(t, c)
				deliver(t, sink, sinktest.NewDelivery(1))
				change(t, c.Path)
				d := sinktest.NewDelivery(2)
				deliver(t, sink, d)
				lines := readFile(t, c.Path)
				require.Len(t, lines, 1)
				require.Equal(t, d.ID, lines[0].ID)
			})
		}
	}
}

func TestALineThatAnotherProgramCutShortIsEnded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	sink := open(t, jsonlines.Config{Path: path})
	deliver(t, sink, sinktest.NewDelivery(1))
	require.NoError(t, os.Truncate(path, 9))
	d := sinktest.NewDelivery(2)
	deliver(t, sink, d)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Len(t, lines[0], 9)
	require.Contains(t, lines[1], d.ID)
}

// After a rotation too, a truncated file gets no hole of NUL bytes where its lines were.
func TestARotatedFileIsWrittenAtItsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("\n", 1<<20)), 0o600))
	sink := open(t, jsonlines.Config{Path: path, MaxSizeMB: 1})
	deliver(t, sink, sinktest.NewDelivery(1))
	require.NoError(t, os.Truncate(path, 0))
	d := sinktest.NewDelivery(2)
	deliver(t, sink, d)
	lines := readFile(t, path)
	require.Len(t, lines, 1)
	require.Equal(t, d.ID, lines[0].ID)
}
