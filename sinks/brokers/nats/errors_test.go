package nats

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	pkgerrors "github.com/pkg/errors"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestErrorsHaveTheirClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want sinks.Class
	}{
		{nats.ErrMaxPayload, sinks.ClassInvalid},
		{nats.ErrBadSubject, sinks.ClassInvalid},
		{&nats.APIError{Code: 400, ErrorCode: 10054}, sinks.ClassPermanent},
		{&nats.APIError{Code: 400, ErrorCode: 10097}, sinks.ClassPermanent},
		{nats.ErrTimeout, sinks.ClassUnavailable},
		{ErrNotConnected, sinks.ClassUnavailable},
		{nats.ErrAuthorization, sinks.ClassUnavailable},
		{nats.ErrNoStreamResponse, sinks.ClassUnavailable},
		{&nats.APIError{Code: 400, ErrorCode: 10002}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 400, ErrorCode: 10060}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 400, ErrorCode: 10109}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 429, ErrorCode: 10167}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 500, ErrorCode: 10047}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 503, ErrorCode: 10077}, sinks.ClassUnavailable},
		{&nats.APIError{Code: 400, ErrorCode: 10158}, sinks.ClassTransient},
		{errors.New("something else"), sinks.ClassTransient},
	} {
		err := classify(pkgerrors.Wrap(c.err, "as Watermill wraps it"))
		require.Equal(t, c.want, sinktest.Class(err), "%v", c.err)
		require.ErrorIs(t, err, c.err)
	}
}

func TestWithoutAConnectionTheErrorSaysWhy(t *testing.T) {
	t.Parallel()
	c := &connection{away: new(atomic.Pointer[error])}
	require.Equal(t, ErrNotConnected, c.explain(nats.ErrReconnectBufExceeded))
	c.away.Store(new(nats.ErrAuthorization))
	err := c.explain(nats.ErrReconnectBufExceeded)
	require.ErrorIs(t, err, ErrNotConnected)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.Equal(t, nats.ErrTimeout, c.explain(nats.ErrTimeout))
}
