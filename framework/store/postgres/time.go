package postgres

import (
	"time"

	"github.com/lib/pq"
)

// parseTime reads a timestamptz as PostgreSQL writes it as text, in UTC. What is
// written in the usual form, by a server that keeps UTC or whole hours from it, is
// read at once, which is several times faster; all else by lib/pq.
func parseTime(text string) (time.Time, error) {
	if t, ok := parseUsualTime(text); ok {
		return t, nil
	}
	t, err := pq.ParseTimestamp(nil, text)
	return t.UTC(), err
}

// usualTime is the form without fraction and zone: DateStyle is ISO with lib/pq.
const usualTime = "0000-00-00 00:00:00"

// parseUsualTime reads usualTime, up to six digits of a fraction, and a zone of whole
// hours.
func parseUsualTime(text string) (time.Time, bool) {
	if len(text) < len(usualTime)+len("+00") {
		return time.Time{}, false
	}
	var part [6]int
	n := 0
	for i := range len(usualTime) {
		switch digit := text[i] - '0'; {
		case usualTime[i] != '0':
			if text[i] != usualTime[i] {
				return time.Time{}, false
			}
			n++
		case digit > 9:
			return time.Time{}, false
		default:
			part[n] = 10*part[n] + int(digit)
		}
	}
	rest := text[len(usualTime):]
	micros, scale := 0, 1_000_000
	if rest[0] == '.' {
		for rest = rest[1:]; len(rest) > 0 && rest[0]-'0' <= 9 && scale > 1; rest = rest[1:] {
			scale /= 10
			micros += int(rest[0]-'0') * scale
		}
	}
	if len(rest) != len("+00") || rest[0] != '+' && rest[0] != '-' || rest[1]-'0' > 9 || rest[2]-'0' > 9 {
		return time.Time{}, false
	}
	zone := 10*int(rest[1]-'0') + int(rest[2]-'0')
	if rest[0] == '-' {
		zone = -zone
	}
	return time.Date(part[0], time.Month(part[1]), part[2], part[3]-zone, part[4], part[5], micros*1000, time.UTC), true
}
