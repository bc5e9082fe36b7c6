package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

func TestEachEventReachesItsHandlersOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, readmetest.Output(t, "go run ./examples/customer"), out.String())
}
