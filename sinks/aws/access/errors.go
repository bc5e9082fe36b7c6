package access

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/waybill-go/waybill/sinks"
)

// Pause is how long a throttled sink waits. The services count in seconds, and say nothing about when to come again.
const Pause = time.Second

// Codes say what the error codes of a service mean, besides those that all services have. A key such as
// "InvalidParameter: too long" is for the errors with the code before the colon whose message has the text after it.
type Codes map[string]sinks.Class

// refused are the codes of credentials that are not accepted, of all services: "Common Errors" in their references.
var refused = map[string]bool{
	"ExpiredToken": true, "ExpiredTokenException": true, "InvalidClientTokenId": true, "UnrecognizedClientException": true,
	"InvalidAccessKeyId": true, "SignatureDoesNotMatch": true, "InvalidSignatureException": true, "IncompleteSignature": true,
	"IncompleteSignatureException": true, "MissingAuthenticationToken": true, "MissingAuthenticationTokenException": true,
	"AuthFailure": true, "RequestExpired": true, "RequestTimeTooSkewed": true, "InvalidSecurity": true, "InvalidToken": true,
}

// common are the codes of all services that are about the sink and not about the notification.
var common = Codes{
	"AccessDenied": sinks.ClassUnavailable, "AccessDeniedException": sinks.ClassUnavailable, "AuthorizationError": sinks.ClassUnavailable,
	"NotAuthorized": sinks.ClassUnavailable, "UnauthorizedOperation": sinks.ClassUnavailable, "OptInRequired": sinks.ClassUnavailable, "SubscriptionRequiredException": sinks.ClassUnavailable,
	"InvalidAction": sinks.ClassUnavailable, "UnknownOperationException": sinks.ClassUnavailable, "UnsupportedOperation": sinks.ClassUnavailable,
	"MissingAction": sinks.ClassUnavailable, "MissingParameter": sinks.ClassUnavailable, "InternalFailure": sinks.ClassUnavailable,
	"InternalError": sinks.ClassUnavailable, "InternalException": sinks.ClassUnavailable, "ServiceUnavailable": sinks.ClassUnavailable,
	"UnknownError": sinks.ClassUnavailable, // the SDK's name for an answer without a code, such as that of a proxy
}

// Answers are the rows of the reference that all services share.
var Answers = []sinks.Answer{
	{Says: "ThrottlingException, Throttling, RequestThrottled, SlowDown, KMS.ThrottlingException and the like", Means: "throttled for a second; entries of a batch are tried again three times before"},
	{Says: "AccessDenied, AuthorizationError, OptInRequired, SubscriptionRequiredException; ExpiredToken, InvalidClientTokenId, UnrecognizedClientException, SignatureDoesNotMatch, RequestExpired; no credentials, no region", Means: "unavailable; credentials are found again"},
	{Says: "KMS.DisabledException, KMS.NotFoundException, KMS.AccessDeniedException, KMS.InvalidStateException and the like", Means: "unavailable"},
	{Says: "HTTP 5xx, InternalFailure, ServiceUnavailable; an answer that is not the service's; the connection cannot be made or is lost; no answer within `timeout`", Means: "unavailable"},
	{Says: "any other code", Means: "transient"},
}

// class returns the class of an error. server reports whether the service blames itself.
func (c Codes) class(code, message string, server bool) sinks.Class {
	plain := strings.TrimPrefix(code, "AWS.SimpleQueueService.") // a prefix of the old protocol, which some errors keep
	if _, throttled := retry.DefaultThrottleErrorCodes[plain]; throttled || strings.HasSuffix(plain, "ThrottlingException") || plain == "KmsThrottled" {
		return sinks.ClassThrottled
	}
	for key, class := range c {
		if of, text, hasText := strings.Cut(key, ": "); hasText && of == plain && strings.Contains(message, text) {
			return class
		}
	}
	if class, known := c[plain]; known {
		return class
	}
	if class, known := common[plain]; known {
		return class
	}
	if server || refused[plain] || strings.HasPrefix(strings.ToUpper(plain), "KMS") {
		return sinks.ClassUnavailable
	}
	return sinks.ClassTransient
}

// Error returns an error of a class that has a code, and the service's message as the answer.
func (c Codes) Error(code, message string, server bool) error {
	return withClass(c.class(code, message, server), sinks.WithAnswer(&codeError{code}, message))
}

// codeError is the code of a service's error.
type codeError struct{ code string }

func (e *codeError) Error() string { return e.code }

// Classify returns an error of a call with its class, and nil for nil. An error that already has a class keeps it.
func (c Codes) Classify(err error) error {
	var (
		classed *sinks.Error
		answer  smithy.APIError
		answers *smithyhttp.ResponseError
		params  *smithy.InvalidParamsError
	)
	switch {
	case err == nil || errors.As(err, &classed):
		return err
	case errors.As(err, &params):
		return sinks.Invalid(err)
	case errors.As(err, &answer):
		server := answer.ErrorFault() == smithy.FaultServer
		if errors.As(err, &answers) {
			server = server || answers.HTTPStatusCode() >= 500
		}
		return c.Error(answer.ErrorCode(), answer.ErrorMessage(), server)
	}
	var unsent *smithyhttp.RequestSendError
	if errors.As(err, &unsent) {
		err = unsent.Err // the rest has only empty fields of an answer
	}
	return sinks.Unavailable(err)
}

func withClass(class sinks.Class, err error) error {
	if class == sinks.ClassThrottled {
		return sinks.Throttled(time.Now().Add(Pause), err)
	}
	return &sinks.Error{Class: class, Err: err}
}

// CodeOf returns the code in an error of [Client.Call]; "" if the service did not answer.
func CodeOf(err error) string {
	var e *codeError
	if !errors.As(err, &e) {
		return ""
	}
	return e.code
}

// Lookup returns the error of a question that says nothing about a notification, such as that for the URL of a queue. It
// is unavailable or throttled. If a right is missing, it names it.
func Lookup(right string, err error) error {
	class, _ := sinks.Classify(err)
	if err == nil || class == sinks.ClassCancelled {
		return err
	}
	if code := CodeOf(err); strings.HasPrefix(code, "AccessDenied") || code == "Forbidden" || code == "AuthorizationError" {
		err = fmt.Errorf("the right %s is missing: %w", right, err)
	}
	if class != sinks.ClassUnavailable && class != sinks.ClassThrottled {
		err = sinks.Unavailable(err)
	}
	return err
}
