package httpsink

import "github.com/waybill-go/waybill/sinks"

// answers list the answers of a destination, for the reference. The code is in response.go.
var answers = []sinks.Answer{
	{Says: "2xx", Means: "delivered; the receipt is `http 202` and the destination's id for the request"},
	{Says: "408, 425, 429, 502, 503, 504 with `Retry-After`", Means: "throttled until then, for at most 1 h; a time in the past is ignored"},
	{Says: "408, 425, 429, 502, 503, 504 without `Retry-After`", Means: "transient"},
	{Says: "409, 421, 423, 424, other 5xx", Means: "transient"},
	{Says: "401, 402, 403, 404, 405, 407, 410, 426, 428, 451, 501, 505, 511", Means: "unavailable; transient if `url` is a template, except a 407 of the configured proxy"},
	{Says: "3xx, 101", Means: "unavailable, because redirects are not followed; transient if `url` is a template"},
	{Says: "other 4xx", Means: "permanent; a batch is sent again in halves, until the refused event is alone"},
	{Says: "no connection: name, TCP, TLS, proxy", Means: "unavailable"},
	{Says: "an address that the guard refuses", Means: "invalid if the host comes from data, otherwise unavailable"},
	{Says: "connection lost, or no answer within `timeout`", Means: "transient"},
	{Says: "nothing is sent: the template gives no valid URL", Means: "invalid"},
}
