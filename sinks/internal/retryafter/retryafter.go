// Package retryafter reads the header Retry-After of HTTP.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max limits how long a server can throttle a sink, so that a mistake of the server does not stop the sink
// for days.
const Max = time.Hour

// Parse parses both forms of RFC 9110, section 10.2.3: seconds, also with a fraction, which some servers
// send, and an HTTP date. ok is false if the value is empty, invalid or not in the future. until is at most
// Max after now.
func Parse(value string, now time.Time) (until time.Time, ok bool) {
	limit := now.Add(Max)
	seconds, err := strconv.ParseFloat(value, 64)
	switch {
	case isDecimal(value) && seconds >= Max.Seconds():
		return limit, true
	case isDecimal(value) && err == nil:
		until = now.Add(time.Duration(seconds * float64(time.Second)))
	default:
		if until, err = http.ParseTime(value); err != nil {
			return time.Time{}, false
		}
	}
	if until.After(limit) {
		until = limit
	}
	return until, until.After(now)
}

// isDecimal reports whether a text has only digits and dots, and so no sign, exponent or word.
func isDecimal(text string) bool { return text != "" && strings.Trim(text, "0123456789.") == "" }
