package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestAWrappedErrorKeepsItsClass(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	until := time.Now().Add(time.Hour)
	for want, err := range map[sinks.Class]error{
		sinks.ClassTransient:   cause,
		sinks.ClassThrottled:   sinks.Throttled(until, cause),
		sinks.ClassUnavailable: sinks.Unavailable(cause),
		sinks.ClassPermanent:   sinks.Permanent(cause),
		sinks.ClassUnknown:     sinks.Unknown(cause),
		sinks.ClassCancelled:   context.Canceled,
	} {
		class, _ := sinks.Classify(fmt.Errorf("deliver: %w", err))
		require.Equal(t, want, class)
		require.NotContains(t, class.String(), "Class(")
	}
	require.EqualError(t, sinks.Unknown(cause), "unknown: cause")
	require.ErrorIs(t, sinks.Unknown(cause), cause)
}
