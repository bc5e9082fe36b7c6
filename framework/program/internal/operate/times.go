package operate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ageFlag is the value of a flag: a Go duration, or a number of days, as in 90m or 7d.
type ageFlag struct{ time.Duration }

func (f *ageFlag) Set(text string) error {
	d, err := parseAge(text)
	if err != nil || d < 0 {
		return fmt.Errorf("use a duration like 90m, 12h or 7d")
	}
	f.Duration = d
	return nil
}

func (f *ageFlag) Type() string { return "age" }

func (f *ageFlag) String() string {
	if f.Duration == 0 {
		return ""
	}
	return f.Duration.String()
}

func parseAge(text string) (time.Duration, error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * 24 * float64(time.Hour)), err
	}
	return time.ParseDuration(text)
}

// momentFlag is the value of a flag: a time, or how long ago it was.
type momentFlag struct{ time.Time }

// layouts are the accepted forms of a time. Without a zone it is UTC.
var layouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05Z", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly}

func (f *momentFlag) Set(text string) error {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			f.Time = t.UTC()
			return nil
		}
	}
	if clock, err := time.Parse("15:04", text); err == nil {
		now := time.Now().UTC()
		if f.Time = now.Truncate(24 * time.Hour).Add(clock.Sub(clock.Truncate(24 * time.Hour))); f.After(now) {
			f.Time = f.AddDate(0, 0, -1)
		}
		return nil
	}
	ago, err := parseAge(text)
	if err != nil || ago < 0 {
		return fmt.Errorf("use a time like 2026-01-31T12:00:00Z or 12:00 (UTC without a zone), or an age like 90m or 7d")
	}
	f.Time = time.Now().Add(-ago).UTC()
	return nil
}

func (f *momentFlag) Type() string { return "time" }

func (f *momentFlag) String() string {
	if f.IsZero() {
		return ""
	}
	return f.Format(time.RFC3339)
}
