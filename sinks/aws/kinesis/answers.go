package kinesis

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
)

// codes are the errors of PutRecords and of its records.
var codes = access.Codes{
	"ResourceNotFoundException": sinks.ClassUnavailable,
	"ResourceInUseException":    sinks.ClassUnavailable,
	"InvalidArgumentException":  sinks.ClassTransient,
	"ValidationException":       sinks.ClassTransient,
}

var answers = append([]sinks.Answer{
	{Says: "the record has a sequence number", Means: "delivered"},
	{Says: "nothing is sent: larger than `max_bytes`, without `large`; the template gives no legal name", Means: "invalid"},
	{Says: "ProvisionedThroughputExceededException, KMSThrottlingException, LimitExceededException", Means: "throttled for a second; a record is tried again three times before"},
	{Says: "ResourceNotFoundException, ResourceInUseException", Means: "unavailable"},
	{Says: "InvalidArgumentException, ValidationException", Means: "transient; in a request of several, only for the records that are also refused alone"},
}, access.Answers...)
