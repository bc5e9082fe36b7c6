package policy

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
)

func TestHooksAreEqualIfTheirFunctionValuesAreIdentical(t *testing.T) {
	t.Parallel()
	called := 0
	count := func() func(context.Context, *sql.Tx, []event.Parked) error {
		return func(context.Context, *sql.Tx, []event.Parked) error { called++; return nil }
	}
	a, b := count(), count()
	same := func(h, other Hooks) bool { return h.Same(other) }
	require.True(t, same(Hooks{}, Hooks{}))
	require.True(t, same(Hooks{Dead: a}, Hooks{Dead: a}))
	require.False(t, same(Hooks{Dead: a}, Hooks{Dead: b}), "another closure of the same text")
	require.False(t, same(Hooks{Dead: a}, Hooks{Parked: a}))
	require.False(t, same(Hooks{}, Hooks{Dead: a}))
}
