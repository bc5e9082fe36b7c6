package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

func TestEachFollowerGetsOneMailForTwelveComments(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out strings.Builder
	// A busy machine may pause between two comments, but not for so long.
	require.NoError(t, run(t.Context(), 3*time.Second, 10*time.Millisecond, &out))
	require.Equal(t, readmetest.Output(t, "go run ./examples/comments"), out.String())
}
