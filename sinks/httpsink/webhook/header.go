package webhook

// Headers of a request. Their names are case-insensitive, as always in HTTP.
//
// Values from a notification can be any text, but headers cannot. So bytes outside printable
// ASCII, "%", and spaces at either end are percent-encoded. [net/url.PathUnescape] decodes
// them. Ordinary ids, types and keys are unchanged.
const (
	HeaderID         = "Waybill-Id"          // the notification's id, the same on every attempt
	HeaderType       = "Waybill-Type"        // its registered name
	HeaderVersion    = "Waybill-Version"     // the payload's version
	HeaderKey        = "Waybill-Key"         // the ordering key; absent without one
	HeaderOccurredOn = "Waybill-Occurred-On" // RFC 3339 in UTC, to the microsecond
	HeaderAttempt    = "Waybill-Attempt"     // from 1
	HeaderGroup      = "Waybill-Group"       // the group of a collection, whose id is then HeaderID

	// HeaderIdempotencyKey is the id again, under a customary name. For a batch or a collection,
	// it is the id of that.
	HeaderIdempotencyKey = "Idempotency-Key"

	// HeaderMetaPrefix and a name form the header of metadata that the configuration lists.
	// Characters of the name except letters, digits, ".", "-" and "_" are percent-encoded.
	// Its case is lost. Some servers drop names with "_" unless they are configured to
	// accept them (nginx: underscores_in_headers).
	HeaderMetaPrefix = "Waybill-Meta-"
)

// Headers of a signed request, from Standard Webhooks 1.0.0.
const (
	HeaderWebhookID        = "Webhook-Id"        // like Idempotency-Key, with "." percent-encoded, since it separates the signed fields
	HeaderWebhookTimestamp = "Webhook-Timestamp" // of the attempt, in Unix seconds
	HeaderWebhookSignature = "Webhook-Signature" // for each secret, over "id.timestamp.body": "v1," and HMAC-SHA256, or "v1a," and ed25519, in base64
)
