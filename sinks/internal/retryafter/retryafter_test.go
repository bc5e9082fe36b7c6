package retryafter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/internal/retryafter"
)

func FuzzRetryAfterIsInTheNearFuture(f *testing.F) {
	for _, s := range []string{"120", "-1", "Sat, 01 Mar 2025 12:00:30 GMT", "9999999999999", "", "1e3", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(s)
	}
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		if until, ok := retryafter.Parse(value, now); ok {
			require.True(t, until.After(now) && !until.After(now.Add(retryafter.Max)), "%q: %s", value, until)
		}
	})
}
