package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

func TestEachFollowerGetsEachMailOnce(t *testing.T) {
	t.Parallel()
	var out readmetest.Writer
	require.NoError(t, run(t.Context(), &out))
	want := readmetest.Output(t, "go run ./examples/comments")
	require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(out.String(), "\n"), "mails go at once, in any order")
}
