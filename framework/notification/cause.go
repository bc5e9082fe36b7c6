package notification

import "context"

// causeKey is the context key of a cause.
type causeKey struct{}

// WithCause returns a context in which what is published has the envelope as its cause:
// the publisher notes the envelope's id as causation id, and its correlation id, or where
// it has none its id, as correlation id. Sinks that call the application's code set it.
func WithCause(ctx context.Context, e *Envelope) context.Context {
	return context.WithValue(ctx, causeKey{}, e)
}

// Cause is the envelope that [WithCause] put into a context; nil if there is none.
func Cause(ctx context.Context) *Envelope {
	e, _ := ctx.Value(causeKey{}).(*Envelope)
	return e
}
