package nats

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks"
)

var answers = []sinks.Answer{
	{Says: "acknowledged by the stream, also as a duplicate of an earlier message of this sink (the receipt says so)", Means: "delivered"},
	{Says: "connection lost or refused, credentials refused, no permission to publish, no answer within `timeout`", Means: "unavailable"},
	{Says: "no stream has the subject, or JetStream is starting", Means: "unavailable"},
	{Says: "the subject belongs to a stream other than `stream`, or the stream is sealed", Means: "unavailable"},
	{Says: "429, 500, 503: the stream is full and discards new messages, has no leader, or its server or account has no room", Means: "unavailable"},
	{Says: "more bytes than the stream's maximum message size, or 64 KiB of headers", Means: "permanent"},
	{Says: "more bytes than the server's max_payload; headers that NATS does not allow; a subject that is reserved, has more than 1000 bytes, or contains blanks, wildcards or an empty part (not sent)", Means: "invalid"},
}

// ErrNotConnected means that the connection is lost and could not be made again yet. It comes with the cause.
var ErrNotConnected = errors.New("not connected to NATS")

// Codes of JetStream's errors in the server's errors.json for which the client has no constants.
const (
	messageTooLarge nats.ErrorCode = 10054 // JSStreamMessageExceedsMaximumErr
	headerTooLarge  nats.ErrorCode = 10097 // JSStreamHeaderExceedsMaximumErr
	otherStream     nats.ErrorCode = 10060 // JSStreamNotMatchErr
	accountFull     nats.ErrorCode = 10002 // JSAccountResourcesExceededErr
	streamSealed    nats.ErrorCode = 10109 // JSStreamSealedErr
)

// messageErrors are the client's errors about a message, which it does not send.
var messageErrors = []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg}

// serverErrors are errors that affect every message, such as a missing server or stream.
var serverErrors = []error{
	ErrNotConnected, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, nats.ErrDisconnected,
	nats.ErrNoServers, nats.ErrStaleConnection, nats.ErrTimeout, nats.ErrNoStreamResponse, nats.ErrHeadersNotSupported,
	nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrPermissionViolation,
}

// classify adds the class to an error of publishing.
func classify(err error) error {
	var refused *nats.APIError
	switch {
	case isAny(err, messageErrors):
		return sinks.Invalid(err)
	case isAny(err, serverErrors):
		return sinks.Unavailable(err)
	case !errors.As(err, &refused):
		return err
	}
	switch refused.ErrorCode {
	case messageTooLarge, headerTooLarge:
		return sinks.Permanent(err)
	case otherStream, accountFull, streamSealed:
		return sinks.Unavailable(err)
	}
	if refused.Code == http.StatusTooManyRequests || refused.Code >= http.StatusInternalServerError {
		return sinks.Unavailable(err) // the stream cannot store anything now
	}
	return err
}

// isAboutServer reports whether an error means that the server that the client is connected to, or the cluster behind
// it, cannot be used.
func isAboutServer(err error) bool {
	var refused *nats.APIError
	return isTimeout(err) || errors.Is(err, nats.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) ||
		errors.As(err, &refused) && refused.Code == http.StatusServiceUnavailable
}

func isTimeout(err error) bool {
	return isAny(err, []error{nats.ErrTimeout, context.DeadlineExceeded, os.ErrDeadlineExceeded})
}

func isAny(err error, list []error) bool {
	return slices.ContainsFunc(list, func(one error) bool { return errors.Is(err, one) })
}
