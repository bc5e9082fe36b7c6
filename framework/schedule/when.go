package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/cronexpr"

	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/framework/internal/zones"
)

// When is the rule for when a schedule is due. Every and Cron make it.
type When struct {
	next func(after time.Time) time.Time
	text string
	err  error
}

// Next returns the first tick after a time, in UTC.
func (w When) Next(after time.Time) time.Time { return w.next(after).UTC() }

// String returns the rule as given to Every or Cron, such as "every 15m" or
// "0 9 * * * Europe/Berlin".
func (w When) String() string { return w.text }

// Err returns what is wrong with the rule, or nil.
func (w When) Err() error {
	if w.next == nil && w.err == nil {
		return errors.New("it is never due: use Every or Cron")
	}
	return w.err
}

// latest returns the last tick that is not after now. first is a tick that is not after now.
func (w When) latest(first, now time.Time) (last time.Time) {
	last = first
	for back := time.Minute; back > 0 && now.Add(-back).After(first); back *= 2 { // avoids going through a year of minutes
		if t := w.Next(now.Add(-back)); !t.After(now) {
			last = t
			break
		}
	}
	for t := last; !t.After(now); t = w.Next(t) {
		last = t
	}
	return last
}

// Every is due at each multiple of a period since 1970-01-01T00:00:00Z, so that all processes
// agree: 15m is each quarter of an hour, 24h is midnight in UTC, and 168h is midnight at the
// start of each Thursday. The period is in whole seconds, at least one.
func Every(period time.Duration) When {
	w := When{text: "every " + duration.Text(period)}
	if period < time.Second || period%time.Second != 0 {
		w.err = fmt.Errorf("every %s: use whole seconds, 1s or more", period)
		return w
	}
	seconds := int64(period / time.Second)
	w.next = func(after time.Time) time.Time {
		n := after.Unix() / seconds
		if after.Unix()%seconds < 0 {
			n--
		}
		return time.Unix((n+1)*seconds, 0)
	}
	return w
}

// Cron is due at the times of a crontab(5) line in an IANA time zone, such as Europe/Berlin; ""
// means UTC. The line has five fields (minute, hour, day of the month, month, day of the week)
// or is one of @hourly, @daily, @weekly, @monthly and @yearly. A field may have lists, ranges,
// steps and names (MON-FRI). L is the last day of the month, and MON#2 its second Monday. If
// both days are given, one of them is enough.
//
// Clock changes: a line with given hours (0, 2-4) is due once for each of its times of day. A
// time that the clock skips is due when the clock goes forward; a time that occurs twice is due
// the first time. A line whose hour is * or */n is due whenever the clock shows one of its times.
func Cron(line, zone string) When {
	fields := strings.Fields(line)
	w := When{text: strings.Join(append(fields, zone), " ")}
	if zone == "" {
		zone = "UTC"
		w.text += zone
	}
	location, zoneErr := zones.Load(zone)
	expression, lineErr := parse(line, fields)
	if w.err = errors.Join(lineErr, zoneErr); w.err != nil {
		return w
	}
	c := cron{expression, location}
	if w.next = c.once; fields[0] == "@hourly" || len(fields) == 5 && strings.HasPrefix(fields[1], "*") {
		w.next = c.always
	}
	return w
}

// aliases are the lines with names.
var aliases = []string{"@hourly", "@daily", "@weekly", "@monthly", "@yearly"}

func parse(line string, fields []string) (*cronexpr.Expression, error) {
	text := strings.Join(fields, " ")
	switch {
	case strings.HasPrefix(text, "@every"):
		return nil, fmt.Errorf("cron %q: a period is not a crontab line: write every: 5m, or Every(5*time.Minute)", line)
	case strings.HasPrefix(text, "TZ="), strings.HasPrefix(text, "CRON_TZ="):
		return nil, fmt.Errorf("cron %q: the time zone is not part of the line: set zone: Europe/Berlin, or Cron's second argument", line)
	case strings.HasPrefix(text, "@"):
		if !slices.Contains(aliases, text) {
			return nil, fmt.Errorf("cron %q: use five fields, or one of %s", line, strings.Join(aliases, ", "))
		}
	case len(fields) != 5:
		return nil, fmt.Errorf("cron %q has %d fields: write five, minute, hour, day of the month, month and day of the week, as in 0 9 * * MON-FRI, or one of %s",
			line, len(fields), strings.Join(aliases, ", "))
	}
	expression, err := cronexpr.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", line, err)
	}
	if expression.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %q is never due: there is no such day, or a range ends before it begins", line)
	}
	return expression, nil
}

// cron is a crontab line in a time zone. The library gets only wall-clock times, as if they
// were UTC; clock changes are handled here.
type cron struct {
	line *cronexpr.Expression
	zone *time.Location
}

// never is after all ticks: the library knows years up to 2099.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// wall returns the wall-clock time in the zone, as if it were UTC.
func (c cron) wall(t time.Time) time.Time {
	_, offset := t.In(c.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// once returns the next tick of a line that is due once for each of its times of day. at keeps
// their order, so the first result after the given time is the next tick.
func (c cron) once(after time.Time) time.Time {
	for wall := c.line.Next(c.wall(after)); !wall.IsZero(); wall = c.line.Next(wall) {
		if t := c.at(wall); t.After(after) {
			return t
		}
	}
	return never
}

// at returns when the clock first shows a time, or skips it.
func (c cron) at(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, c.zone)
	start, end := t.ZoneBounds()
	switch shown := c.wall(t); {
	case shown.Before(wall):
		return end
	case shown.After(wall):
		return start
	case start.IsZero():
		return t
	}
	_, offset := t.Zone()
	_, before := start.Add(-time.Second).Zone()
	if first := t.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
		return first
	}
	return t
}

// always returns the next tick of a line that is due whenever the clock shows its times. It
// goes from one change of the zone's offset to the next; between them clocks run evenly.
func (c cron) always(after time.Time) time.Time {
	for {
		wall := c.wall(after)
		next := c.line.Next(wall)
		if next.IsZero() {
			return never
		}
		t := after.Add(next.Sub(wall))
		_, end := after.In(c.zone).ZoneBounds()
		if end.IsZero() || t.Before(end) {
			return t
		}
		if wall = c.wall(end); c.line.Next(wall.Add(-time.Second)).Equal(wall) {
			return end
		}
		after = end
	}
}
