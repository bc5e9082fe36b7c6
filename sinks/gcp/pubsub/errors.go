package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Errors of a notification that is not sent.
var (
	// ErrTooLarge means that a message does not fit into a request.
	ErrTooLarge = errors.New("message is too large")
	// ErrAttribute means that a message has an attribute that the service or its protocol does not accept, or too many.
	ErrAttribute = errors.New("attribute cannot be sent")
)

// Errors of the sink as a whole.
var (
	// ErrCredentials means that there are no credentials, or that they cannot be read.
	ErrCredentials = errors.New("no credentials for Pub/Sub")
	// ErrProject means that neither topic nor project nor the credentials name a project.
	ErrProject = errors.New("project: is missing, and the credentials name none")
	// ErrOverdue means that the service did not answer in time. The message may have been published.
	ErrOverdue = errors.New("pubsub did not answer in time")
	// ErrRights means that the credentials have no right to publish.
	ErrRights = errors.New("no right to publish; grant roles/pubsub.publisher on the topic, or is there no such topic?")
	// ErrClosed means that the sink is closed.
	ErrClosed = errors.New("pubsub sink is closed")
)

// errSilent is the error of a message that is not sent because an earlier request of the batch to its topic got no answer.
var errSilent = errors.New("not sent, because the topic did not answer the previous request")

// errPreviousFailed is the error of a message that is not sent because the previous one of its key was not published.
var errPreviousFailed = errors.New("not sent, because the previous message of its key was not published")

// Error is an answer of Pub/Sub, or of the connection to it.
type Error struct {
	Topic string // as the configuration or data names it
	Code  codes.Code
}

func (e *Error) Error() string {
	text := "topic " + e.Topic + ": " + e.Code.String()
	if hint := hints[e.Code]; hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// hints are advice for operators.
var hints = map[codes.Code]string{
	codes.NotFound:           "create the topic, or correct topic and project",
	codes.PermissionDenied:   "grant roles/pubsub.publisher on the topic, and enable the Pub/Sub API in its project",
	codes.Unauthenticated:    "check credentials_file and impersonate, or the Application Default Credentials",
	codes.FailedPrecondition: "is billing enabled, the topic's encryption key usable, and the endpoint's region one that the topic's storage policy allows?",
	codes.Unimplemented:      "is endpoint that of Pub/Sub?",
}

// throttle is how long the sink waits if the service does not say for how long.
const throttle = time.Second

var answers = []sinks.Answer{
	{Says: "OK, with the message's id", Means: "delivered"},
	{Says: "INVALID_ARGUMENT: the message does not fit the topic's schema, for example", Means: "permanent; in a batch, only for messages that are also refused alone"},
	{Says: "nothing is sent: larger than 10 MB without `large`; an attribute of more than 1024 bytes; the template gives no topic", Means: "invalid"},
	{Says: "RESOURCE_EXHAUSTED: a quota is used up", Means: "throttled for as long as the answer says, or 1 s"},
	{Says: "NOT_FOUND, PERMISSION_DENIED", Means: "unavailable; if data names the topic, only for its notifications"},
	{Says: "UNAUTHENTICATED, FAILED_PRECONDITION, UNIMPLEMENTED; no credentials or no project", Means: "unavailable"},
	{Says: "UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, ABORTED, CANCELLED, UNKNOWN, any other code; the connection cannot be made or is lost; no answer within `timeout`", Means: "unavailable"},
}

// classOf returns the class of an answer. Only INVALID_ARGUMENT is about the message. INTERNAL and UNKNOWN may be, too,
// but they are also what an outage looks like. The engine counts an attempt if only this delivery gets them.
func classOf(code codes.Code) sinks.Class {
	switch code {
	case codes.InvalidArgument:
		return sinks.ClassPermanent
	case codes.ResourceExhausted:
		return sinks.ClassThrottled
	}
	return sinks.ClassUnavailable
}

// failure returns the error of a call with its class.
func (s *Sink) failure(ctx context.Context, topic string, err error) error {
	answer := status.Convert(err)
	code := answer.Code()
	switch {
	case ctx.Err() != nil:
		return late(ctx)
	case s.life.Err() != nil:
		return sinks.Unavailable(ErrClosed)
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	failed := &sinks.Error{Class: classOf(code), Err: &Error{topic, code}}
	if code == codes.DeadlineExceeded {
		failed.Err = fmt.Errorf("%w: %w", ErrOverdue, failed.Err)
	}
	if failed.Class == sinks.ClassThrottled {
		failed.Until = time.Now().Add(throttle)
		for _, detail := range answer.Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().AsDuration() > throttle {
				failed.Until = time.Now().Add(retry.GetRetryDelay().AsDuration())
			}
		}
	}
	text := line.Of(answer.Message(), sinks.MaxAnswer)
	if code == codes.Unavailable || code == codes.Unauthenticated { // the client's reason, mostly: nothing of the message
		failed.Err = fmt.Errorf("%w: %s", failed.Err, text)
		return failed
	}
	return sinks.WithAnswer(failed, text)
}

// late returns the error of a delivery whose context has ended.
func late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return sinks.Unavailable(fmt.Errorf("%w: %w", ErrOverdue, ctx.Err()))
}
