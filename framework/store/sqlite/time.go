package sqlite

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

const (
	// timeLayout has a fixed width, so that times compare as text.
	timeLayout = "2006-01-02T15:04:05.000000Z"
	// now is SQL for the present time in timeLayout; SQLite's clock has milliseconds. A modifier
	// such as '+15 seconds' may follow 'now'.
	now = `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`
)

// formatTime formats a time in timeLayout. Package time has a faster way for RFC3339 than for other layouts.
func formatTime(t time.Time) string {
	t = notification.ClampTime(t)
	text := t.AppendFormat(make([]byte, 0, len(timeLayout)), time.RFC3339)
	point := len(text) - 1 // instead of Z
	text = strconv.AppendInt(text[:point], int64(1_000_000+t.Nanosecond()/1000), 10)
	text[point] = '.'
	return string(append(text, 'Z'))
}

// milliseconds returns d, rounded up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// foreignTime matches what the log's CHECK accepts beside timeLayout: everything that SQLite accepts as
// a date with a time, see https://sqlite.org/lang_datefunc.html.
var foreignTime = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?\s*(?:[Zz]|([+-]\d\d):(\d\d))?\s*$`)

// parseTime parses a time written by this package or by an SQL producer, with microseconds. Like
// SQLite, it takes 30 February for 2 March, and a time without a zone for UTC.
func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.UTC().Truncate(time.Microsecond), nil
	}
	text, _, _ = strings.Cut(text, "\x00") // SQLite ignores the rest too
	part := foreignTime.FindStringSubmatch(text)
	if part == nil {
		return time.Time{}, fmt.Errorf("%q is not a time", text)
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(part[i]) // digits, or nothing if there is no zone
		return n
	}
	micros, _ := strconv.Atoi((part[7] + "000000")[:6])
	zoneMinutes := number(9)
	if part[8] != "" && part[8][0] == '-' {
		zoneMinutes = -zoneMinutes
	}
	return time.Date(number(1), time.Month(number(2)), number(3),
		number(4)-number(8), number(5)-zoneMinutes, number(6), micros*1000, time.UTC), nil
}
