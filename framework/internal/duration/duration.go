// Package duration formats durations without zero units.
package duration

import (
	"strings"
	"time"
)

// Text returns a duration without trailing units that are zero: 15m, not 15m0s.
func Text(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
