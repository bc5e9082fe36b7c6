package settle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/lanetest"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
)

// begin starts the work on the lane of a bench.
func begin(t *testing.T, b *lanetest.Bench, adjust ...func(*settle.Config)) (*settle.Checkpointer, *dispatch.Lane) {
	leased := time.Now()
	deliveries, cutOff := context.WithCancel(context.WithoutCancel(t.Context()))
	l := b.Dispatcher.Join(deliveries, b.Lease, leased, lanetest.TTL, presence.Term{})
	t.Cleanup(func() {
		l.Close(0, cutOff)
		l.Leave()
	})
	config := settle.Config{Store: b, Lane: l, Lease: b.Lease, Leased: leased, TTL: lanetest.TTL, Logger: slog.New(slog.DiscardHandler)}
	for _, a := range adjust {
		a(&config)
	}
	return settle.New(config), l
}

// run runs a checkpointer until the end of a test.
func run(t *testing.T, c *settle.Checkpointer) {
	db, cut := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context(), db) }()
	t.Cleanup(func() {
		time.AfterFunc(4*lanetest.TTL, cut)
		require.NoError(t, <-ended)
	})
}
