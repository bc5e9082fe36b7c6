package httpsink

import "github.com/waybill-go/waybill/sinks"

// answers are what a destination may say, for the reference. response.go decides.
var answers = []sinks.Answer{
	{Says: "2xx", Means: "delivered; the receipt is `http 202` and the destination's id for the request"},
	{Says: "408, 425, 429, 502, 503, 504 with `Retry-After`", Means: "throttled until then, 1 h at most; a time that has passed is none"},
	{Says: "408, 425, 429, 502, 503, 504 without", Means: "transient"},
	{Says: "409, 421, 423, 424, other 5xx", Means: "transient"},
	{Says: "401, 402, 403, 404, 405, 407, 410, 426, 428, 451, 501, 505, 511", Means: "unavailable; transient where `url` is a template, but for a 407 of the configured proxy"},
	{Says: "3xx, 101", Means: "unavailable, since redirects are not followed; transient where `url` is a template"},
	{Says: "other 4xx", Means: "permanent; a batch is sent again in halves, until the event that is to blame is alone"},
	{Says: "no connection: name, TCP, TLS, proxy", Means: "unavailable"},
	{Says: "an address that the guard refuses", Means: "permanent where the host comes from data, else unavailable"},
	{Says: "connection lost, or no answer within `timeout`", Means: "transient"},
	{Says: "nothing is asked: the template makes no URL of the notification", Means: "permanent"},
}
