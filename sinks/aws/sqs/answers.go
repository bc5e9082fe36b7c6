package sqs

import (
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
)

// codes are the errors of SendMessageBatch and of its entries, and of GetQueueUrl.
var codes = access.Codes{
	"InvalidParameterValue: must be shorter than": sinks.ClassPermanent,
	"InvalidMessageContents":                      sinks.ClassPermanent,
	"InvalidAttributeName":                        sinks.ClassPermanent,
	"InvalidAttributeValue":                       sinks.ClassPermanent,
	"NonExistentQueue":                            sinks.ClassUnavailable,
	"QueueDoesNotExist":                           sinks.ClassUnavailable,
	"QueueDeletedRecently":                        sinks.ClassUnavailable,
	"InvalidAddress":                              sinks.ClassUnavailable,
	"BatchRequestTooLong":                         sinks.ClassPermanent, // if it has one message
	"InvalidParameterValue":                       sinks.ClassTransient,
	"InvalidBatchEntryId":                         sinks.ClassUnavailable,
	"EmptyBatchRequest":                           sinks.ClassUnavailable,
	"TooManyEntriesInBatchRequest":                sinks.ClassUnavailable,
	"BatchEntryIdsNotDistinct":                    sinks.ClassUnavailable,
	"OverLimit":                                   sinks.ClassThrottled,
}

var answers = append([]sinks.Answer{
	{Says: "the message is in the list Successful", Means: "delivered"},
	{Says: "InvalidMessageContents, InvalidAttributeName, InvalidAttributeValue; BatchRequestTooLong and InvalidParameterValue with `Message must be shorter than`, for a message alone", Means: "permanent"},
	{Says: "nothing is sent: larger than `max_bytes`, without `large`; a character that SQS would replace; the template gives no legal name", Means: "invalid"},
	{Says: "QueueDoesNotExist, QueueDeletedRecently, InvalidAddress, UnsupportedOperation, MissingParameter", Means: "unavailable"},
	{Says: "InvalidParameterValue for another reason", Means: "transient"},
}, access.Answers...)

// isMissing reports whether there is no queue at a URL.
func isMissing(err error) bool {
	code := access.CodeOf(err)
	return strings.HasSuffix(code, "QueueDoesNotExist") || strings.HasSuffix(code, "NonExistentQueue")
}
