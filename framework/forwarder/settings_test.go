package forwarder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
)

func TestSettingsAreThoseInEffect(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		f := o.one(forwarder.Sink{Sink: seconds(), Parallelism: forwarder.Parallelism{Threshold: 4}})
		s, works := f.Settings("sink")
		require.True(t, works)
		require.Equal(t, 4, s.Parallelism.Threshold)
		require.Equal(t, forwarder.DefaultTimeout, s.Timeout)
		f.adjust(func(s *forwarder.Sink) { s.Parallelism.Threshold = 20 })
		s, _ = f.Settings("sink")
		require.Equal(t, 20, s.Parallelism.Threshold)
		_, works = f.Settings("other")
		require.False(t, works)
		f.end()
	})
}
