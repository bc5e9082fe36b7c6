package quota_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/store"
)

// silent is a store whose log is elsewhere and never answers.
type silent struct{ quota.Store }

func (silent) Source() store.Source { return struct{ store.Source }{} }

func (silent) Probe(ctx context.Context) (store.Target, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Due(context.Context, store.DueQuery) ([]store.Parked, time.Time, error) {
	return nil, time.Time{}, nil
}

func TestALogElsewhereTakesNoConnection(t *testing.T) {
	t.Parallel()
	b := quota.New(silent{}, quota.Least)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 8)
	for range cap(ended) {
		go func() { _, err := b.Probe(ctx); ended <- err }()
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	time.Sleep(10 * time.Millisecond)
	_, _, err := b.Due(soon, store.DueQuery{})
	require.NoError(t, err)
	end()
	for range cap(ended) {
		require.Error(t, <-ended)
	}
}
