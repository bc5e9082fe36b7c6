package eventbridge

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
)

// codes are the errors of PutEvents and of its entries, and of DescribeEventBus.
var codes = access.Codes{
	"MalformedDetail":                     sinks.ClassPermanent,
	"InvalidArgument":                     sinks.ClassTransient,
	"ValidationException":                 sinks.ClassTransient,
	"RedactionFailure":                    sinks.ClassTransient,
	"ResourceNotFoundException":           sinks.ClassUnavailable,
	"NotAuthorizedForSourceException":     sinks.ClassUnavailable,
	"NotAuthorizedForDetailTypeException": sinks.ClassUnavailable,
	"InvalidAccountIdException":           sinks.ClassUnavailable,
	"OperationDisabledException":          sinks.ClassUnavailable,
}

var answers = append([]sinks.Answer{
	{Says: "the entry has an EventId, and the bus existed up to a minute before", Means: "delivered"},
	{Says: "MalformedDetail", Means: "permanent"},
	{Says: "nothing is sent: larger than `max_bytes`, without `large`; a payload that is not a JSON object, with `format: payload`; a text that is not UTF-8; a template gives no legal bus or detail type", Means: "invalid"},
	{Says: "ResourceNotFoundException: there is no such bus; NotAuthorizedForSourceException, NotAuthorizedForDetailTypeException, InvalidAccountIdException, OperationDisabledException", Means: "unavailable"},
	{Says: "InvalidArgument, ValidationException, RedactionFailure", Means: "transient"},
}, access.Answers...)
