package brokertest

import (
	"context"
	"errors"
	"testing"
)

// Start starts a broker for one test with one of the functions of this package. If the broker is
// not installed, the test is skipped.
func Start(t testing.TB, start func(context.Context) (*Broker, error)) *Broker {
	t.Helper()
	b, err := start(t.Context())
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}
