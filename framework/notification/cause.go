package notification

import "context"

// causeKey is the context key of a cause.
type causeKey struct{}

// WithCause returns a context in which the envelope is the cause of what is published:
// the publisher writes the envelope's id as the causation id, and its correlation id (its id
// if it has none) as the correlation id. Sinks that call the application's code set it.
func WithCause(ctx context.Context, e *Envelope) context.Context {
	return context.WithValue(ctx, causeKey{}, e)
}

// Cause returns the envelope that [WithCause] put into the context, or nil.
func Cause(ctx context.Context) *Envelope {
	e, _ := ctx.Value(causeKey{}).(*Envelope)
	return e
}
