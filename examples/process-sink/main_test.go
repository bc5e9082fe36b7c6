package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryPaymentIsBookedOnce(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Contains(t, out.String(), "payment-4: delivered at attempt 1: was booked before")
	require.Contains(t, out.String(), "-1 cents cannot be booked")
}
