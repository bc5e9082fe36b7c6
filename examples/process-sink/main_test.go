package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
)

func TestEveryPaymentIsBookedOnce(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	// What is in flight when the program dies may be booked before, or tried again.
	lucky := regexp.MustCompile(`(payment-[1-3]: delivered) at attempt \d+: .*`)
	sorted := func(text string) []string {
		return slices.Sorted(strings.Lines(lucky.ReplaceAllString(text, "$1")))
	}
	require.Equal(t, sorted(readmetest.Output(t, "go run ./examples/process-sink")), sorted(out.String()))
}
