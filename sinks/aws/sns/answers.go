package sns

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
)

// codes are the errors of PublishBatch and of its entries, and of GetTopicAttributes.
var codes = access.Codes{
	"InvalidParameter: Message too long": sinks.ClassPermanent,
	"InvalidParameter: TopicArn":         sinks.ClassUnavailable,
	"BatchRequestTooLong":                sinks.ClassPermanent, // if it has one message
	"InvalidParameter":                   sinks.ClassTransient,
	"ParameterValueInvalid":              sinks.ClassTransient,
	"ValidationException":                sinks.ClassTransient,
	"NotFound":                           sinks.ClassUnavailable,
	"ResourceNotFound":                   sinks.ClassUnavailable,
	"InvalidState":                       sinks.ClassUnavailable,
	"InvalidBatchEntryId":                sinks.ClassUnavailable,
	"EmptyBatchRequest":                  sinks.ClassUnavailable,
	"TooManyEntriesInBatchRequest":       sinks.ClassUnavailable,
	"BatchEntryIdsNotDistinct":           sinks.ClassUnavailable,
	"Throttled":                          sinks.ClassThrottled,
	"KMSThrottling":                      sinks.ClassThrottled,
}

var answers = append([]sinks.Answer{
	{Says: "the message is in the list Successful", Means: "delivered"},
	{Says: "BatchRequestTooLong, and InvalidParameter with `Message too long`, for a message alone", Means: "permanent"},
	{Says: "nothing is sent: larger than `max_bytes`, without `large`; empty; a character that SQS would replace; a template gives no legal name or subject", Means: "invalid"},
	{Says: "NotFound, ResourceNotFound, InvalidState, InvalidParameter with `TopicArn`; KMSDisabled, KMSNotFound, KMSAccessDenied, KMSInvalidState, KMSOptInRequired", Means: "unavailable"},
	{Says: "Throttled, KMSThrottling", Means: "throttled"},
	{Says: "InvalidParameter, ParameterValueInvalid, ValidationException for another reason", Means: "transient"},
}, access.Answers...)
