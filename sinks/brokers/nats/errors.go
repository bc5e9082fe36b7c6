package nats

import (
	"errors"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks"
)

var answers = []sinks.Answer{
	{Says: "acknowledged by the stream, also as a duplicate of what this sink has published before (the receipt says so)", Means: "delivered"},
	{Says: "connection lost or refused, credentials refused, no permission to publish, no answer within timeout", Means: "unavailable"},
	{Says: "no stream has the subject, or JetStream is starting", Means: "unavailable"},
	{Says: "another stream than stream has the subject, or the stream is sealed", Means: "unavailable"},
	{Says: "429, 500, 503: the stream is full and discards new messages, has no leader, or its server or account has no room", Means: "unavailable"},
	{Says: "more bytes than the server's max_payload, or the stream's maximum message size", Means: "permanent"},
	{Says: "headers that NATS does not allow; a subject with blanks, wildcards or an empty part, of the server's own, or of more than 1000 bytes (not sent)", Means: "permanent"},
}

// Codes of JetStream's errors, as in the server's errors.json, that the client does not name.
const (
	messageTooLarge nats.ErrorCode = 10054 // JSStreamMessageExceedsMaximumErr
	headerTooLarge  nats.ErrorCode = 10097 // JSStreamHeaderExceedsMaximumErr
	otherStream     nats.ErrorCode = 10060 // JSStreamNotMatchErr
	accountFull     nats.ErrorCode = 10002 // JSAccountResourcesExceededErr
	streamSealed    nats.ErrorCode = 10109 // JSStreamSealedErr
)

// ofMessage are errors that a message meets for what it is.
var ofMessage = []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg}

// ofServer are errors that every message meets: no server, or no stream.
var ofServer = []error{
	nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, nats.ErrDisconnected,
	nats.ErrNoServers, nats.ErrStaleConnection, nats.ErrTimeout, nats.ErrNoStreamResponse, nats.ErrHeadersNotSupported,
	nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrPermissionViolation,
}

// classify is about errors of publishing.
func classify(err error) error {
	var refused *nats.APIError
	switch {
	case isAny(err, ofMessage):
		return sinks.Permanent(err)
	case isAny(err, ofServer):
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
		return sinks.Unavailable(err) // it cannot store anything now
	}
	return err
}

func isAny(err error, list []error) bool {
	return slices.ContainsFunc(list, func(one error) bool { return errors.Is(err, one) })
}
