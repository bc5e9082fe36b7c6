package webhook

import "errors"

// Errors of a [Receiver] about a request.
var (
	// ErrSignature means that none of the receiver's secrets has signed the request within
	// the last five minutes.
	ErrSignature = errors.New("request is not signed by the sender")
	// ErrEnvelope means that the request is signed but does not contain a notification in
	// the expected format.
	ErrEnvelope = errors.New("request holds no notification")
)
