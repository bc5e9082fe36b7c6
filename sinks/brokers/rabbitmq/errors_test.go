package rabbitmq

import (
	"errors"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
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
		{&amqp.Error{Code: amqp.PreconditionFailed}, sinks.ClassPermanent},
		{&amqp.Error{Code: amqp.ContentTooLarge}, sinks.ClassPermanent},
		{&amqp.Error{Code: amqp.NotFound}, sinks.ClassUnavailable},
		{&amqp.Error{Code: amqp.AccessRefused}, sinks.ClassUnavailable},
		{&amqp.Error{Code: amqp.ConnectionForced}, sinks.ClassUnavailable},
		{&amqp.Error{Code: amqp.ResourceError}, sinks.ClassUnavailable},
		{&amqp.Error{Code: amqp.InternalError}, sinks.ClassUnavailable},
		{amqp.ErrClosed, sinks.ClassUnavailable},
		{amqp.ErrChannelMax, sinks.ClassUnavailable},
		{ErrUnroutable, sinks.ClassUnavailable},
		{ErrRefused, sinks.ClassUnavailable},
		{ErrNoAnswer, sinks.ClassUnavailable},
		{ErrBlocked, sinks.ClassUnavailable},
		{errors.New("something else"), sinks.ClassTransient},
	} {
		err := classify(fmt.Errorf("wrapped: %w", c.err))
		require.Equal(t, c.want, sinktest.Class(err), "%v", c.err)
		require.ErrorIs(t, err, c.err)
	}
}
