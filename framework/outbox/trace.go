package outbox

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/notification"
)

// Error types in the span of a call.
const (
	errorDuplicate = "duplicate" // ErrDuplicate
	errorInvalid   = "invalid"   // refused before anything was written
	errorDatabase  = "database"
)

// publishTraced publishes in a span.
func (p *Publisher) publishTraced(ctx context.Context, tx Tx, notifications []any) error {
	ctx, span := p.tracing.Begin(ctx)
	var envelopes []notification.Envelope
	failure := errorInvalid // also if a serializer panics
	defer func() { span.End(envelopes, failure) }()
	envelopes, err := p.publish(ctx, tx, notifications)
	switch {
	case err == nil:
		failure = ""
	case errors.Is(err, ErrDuplicate):
		failure = errorDuplicate
	case envelopes != nil:
		failure = errorDatabase
	}
	return err
}
