package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
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
	want := readmetest.Output(t, "go run ./examples/comments")
	require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(out.String(), "\n"), "mails go at once, in any order")
}
