package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 10 of 30 orders are dead.
	// Why is the first one? warehouse: permanent: 12 are too many
	// The warehouse is repaired; to be requeued: 10.
	// ada has requeued 10; the warehouse has 30 of 30 orders, each once.
}
