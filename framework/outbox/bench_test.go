package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// discardingTx is a transaction without a database, which discards everything.
type discardingTx struct{}

func (discardingTx) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }
func (discardingTx) Commit() error                                                   { return nil }
func (discardingTx) Rollback() error                                                 { return nil }

// largeOrders are notifications of about 300 bytes.
func largeOrders(n int) []any {
	orders := make([]any, n)
	for i := range orders {
		orders[i] = orderPlaced{OrderID: fmt.Sprint("order-", i, strings.Repeat("x", 260)), Total: i}
	}
	return orders
}

// The measured allocations are 29 and 1,613, of which Watermill's publisher makes 7 per call. The limits
// are higher because the race detector adds some.
func TestPublishAllocatesLittle(t *testing.T) { // not parallel: AllocsPerRun counts allocations of all goroutines
	p := newPaperPublisher(t)
	for n, most := range map[int]float64{1: 36, 100: 2100} {
		orders := largeOrders(n)
		allocations := testing.AllocsPerRun(100, func() {
			if err := p.Publish(t.Context(), discardingTx{}, orders...); err != nil {
				t.Fatal(err)
			}
		})
		require.LessOrEqual(t, allocations, most, "%d notifications", n)
	}
}
