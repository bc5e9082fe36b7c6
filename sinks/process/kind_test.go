package process

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	required := Config{Command: []string{"cat"}}
	sinktest.RunKind(t, Kind(), required)
	sink, err := New(sinks.Instance{}, required)
	require.NoError(t, err)
	require.Equal(t, *Kind().Config().(*Config), Config{
		Grace: sink.config.Grace, StartTimeout: sink.config.StartTimeout,
		MaxLineBytes: sink.config.MaxLineBytes,
	})
}
