package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// output is written by several connections at once.
type output struct {
	mu sync.Mutex
	strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Builder.Write(p)
}

func TestEachFollowerGetsEachMailOnce(t *testing.T) {
	t.Parallel()
	var out output
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, 6, strings.Count(out.String(), "mail to "), out.String())
	require.Equal(t, 2, strings.Count(out.String(), "mail to grace@example.com: ada has commented\n"), out.String())
}
