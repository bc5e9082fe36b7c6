package jsonlines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
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
		for _, c := range []jsonlines.Config{{}, {Fsync: true}} {
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

// The file is renamed as logrotate does, with and without a new file at its path.
func TestAFileThatIsRenamedUnderLoadLosesAndTearsNoLine(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"create": true, "nocreate": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			path := filepath.Join(folder, "orders.jsonl")
			sink := open(t, jsonlines.Config{Path: path})
			var rotations sync.WaitGroup
			ended := make(chan struct{})
			var renamed atomic.Int64
			rotations.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
					}
					if os.Rename(path, fmt.Sprintf("%s.%d", path, renamed.Load())) != nil {
						continue // nothing is at the path yet
					}
					renamed.Add(1)
					if create {
						f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
						if err == nil {
							_ = f.Close()
						}
					}
				}
			})
			var sent []string
			for n := 0; n < 300 || renamed.Load() < 20; n++ {
				batch := []*notification.Delivery{sinktest.NewDelivery(3 * n), sinktest.NewDelivery(3*n + 1), sinktest.NewDelivery(3*n + 2)}
				for range 100 { // as the engine tries again
					results := sink.DeliverBatch(t.Context(), batch)
					var missing []*notification.Delivery
					for i, r := range results {
						if r.Err != nil {
							missing = append(missing, batch[i])
						} else {
							sent = append(sent, batch[i].ID)
						}
					}
					if batch = missing; batch == nil {
						break
					}
				}
				require.Empty(t, batch)
			}
			close(ended)
			rotations.Wait()
			files, err := filepath.Glob(path + "*")
			require.NoError(t, err)
			found := make(map[string]bool)
			for _, file := range files {
				for _, line := range readFile(t, file) {
					found[line.ID] = true
				}
			}
			for _, id := range sent {
				require.True(t, found[id], "%s", id)
			}
		})
	}
}
