package mysql

import (
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// timeLayout is the text of a DATETIME(6). It has no zone, which MariaDB would not accept.
const timeLayout = "2006-01-02 15:04:05.000000"

func formatTime(t time.Time) string { return notification.ClampTime(t).Format(timeLayout) }

// parseTime also accepts dates that a server may store if it is not strict, such as 0000-00-00 and
// 2026-02-31.
func parseTime(text string) (time.Time, error) {
	date, clock, _ := strings.Cut(text, " ")
	at, err := time.Parse("15:04:05.999999", clock)
	if err != nil {
		return time.Time{}, err
	}
	var year, month, day int
	if _, err := fmt.Sscanf(date, "%d-%d-%d", &year, &month, &day); err != nil {
		return time.Time{}, fmt.Errorf("%q is not a date: %w", date, err)
	}
	return time.Date(year, time.Month(max(month, 1)), max(day, 1), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC), nil
}
