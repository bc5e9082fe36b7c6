package jsonlines_test

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// TestALineThatAFullDiskCutShortIsEnded limits the size of files, which cuts a write short as a
// full disk does. It is not parallel, since the limit is that of the process.
func TestALineThatAFullDiskCutShortIsEnded(t *testing.T) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Stop(signals) })

	path := filepath.Join(t.TempDir(), "orders.jsonl")
	sink := open(t, jsonlines.Config{Path: path})
	deliver(t, sink, sinktest.NewDelivery(1))
	info, err := os.Stat(path)
	require.NoError(t, err)
	full := before
	full.Cur = uint64(info.Size()) + 10
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) })
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	for range 2 {
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))

	d := sinktest.NewDelivery(2)
	deliver(t, sink, d)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Len(t, lines, 4, "a line, a part of one, a line, and nothing")
	require.Len(t, lines[1], 10)
	require.Contains(t, lines[2], d.ID)
}
