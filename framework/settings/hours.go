package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/framework/internal/zones"
	"github.com/waybill-go/waybill/framework/route"
)

// Hours are when deliveries to a sink may begin: while a clock of the zone shows From or later, and not yet
// To. So an hour that occurs twice when clocks go back is in the hours both times, and if clocks skip From,
// the hours begin when they do. Outside of the hours, deliveries wait for the next time that is in them. The zero
// value is always.
type Hours struct {
	// Time zone of the hours: a name, such as Europe/Berlin, or an expression, as in routes, such as
	// metadata.zone || "Europe/Berlin". Default UTC.
	//
	// A text that is the name of a zone is that zone. If an expression fails for a notification, or its value
	// is not the name of a zone, the hours are those of UTC.
	Zone string `yaml:"zone"`
	// Time of day from which on deliveries begin, such as 08:00. Required.
	From string `yaml:"from"`
	// Time of day from which on no delivery begins, such as 20:00; 00:00 is midnight. If it is before from,
	// the hours last over midnight. Required.
	To string `yaml:"to"`
	// Days on which the hours begin, such as mon-fri, or sat,sun. Default: all.
	Days string `yaml:"days"`
	// Condition, as in routes, for notifications that do not wait, such as metadata.urgent == "true".
	// Outside of the hours they overtake the others of their key. Default: none.
	Unless string `yaml:"unless"`
}

// On reports whether there are hours.
func (h Hours) On() bool { return h != Hours{} }

// String returns the hours in words, such as "08:00 to 20:00 in Europe/Berlin, mon-fri"; "" if there are none.
func (h Hours) String() string {
	if !h.On() {
		return ""
	}
	text := h.From + " to " + h.To + " in " + cmp.Or(h.Zone, "UTC")
	if h.Days != "" {
		text += ", " + h.Days
	}
	if h.Unless != "" {
		text += ", unless " + h.Unless
	}
	return text
}

func (h Hours) validate(p *Problems, at string) {
	if h.On() {
		h.timetable(p, at)
	}
}

// Timetable returns the compiled form of hours that are valid; nil if there are none.
func (h Hours) Timetable() *Timetable {
	if !h.On() {
		return nil
	}
	return h.timetable(&Problems{}, "")
}

// Timetable is the compiled form of Hours. It is immutable and safe for concurrent use.
type Timetable struct {
	// Zone is the zone, if it is the same for all notifications; otherwise it is nil, and ZoneOf gives the
	// zone's name.
	Zone   *time.Location
	ZoneOf *route.Text
	// Unless holds for notifications that do not wait; nil: for none.
	Unless *route.Condition

	from, to time.Duration // since midnight; to may be on the next day
	days     [7]bool
}

// Opening returns the first time, from at on, at which a clock of the zone shows one of the hours. That is at
// itself if it does so now.
func (t *Timetable) Opening(at time.Time, zone *time.Location) time.Time {
	for {
		local := at.In(zone)
		_, offset := local.Zone()
		wait := t.wait(at.UTC().Add(time.Duration(offset) * time.Second))
		_, change := local.ZoneBounds()
		if wait == 0 || change.IsZero() || at.Add(wait).Before(change) {
			return at.Add(wait)
		}
		at = change
	}
}

// wait returns how long a clock that shows the given time of UTC, and is never changed, takes until it shows
// one of the hours.
func (t *Timetable) wait(shown time.Time) time.Duration {
	const day = 24 * time.Hour
	for midnight := shown.Truncate(day).Add(-day); ; midnight = midnight.Add(day) {
		if t.days[midnight.Weekday()] && shown.Before(midnight.Add(t.to)) {
			return max(0, midnight.Add(t.from).Sub(shown))
		}
	}
}

// timetable compiles the hours, and reports their mistakes.
func (h Hours) timetable(p *Problems, at string) *Timetable {
	t := &Timetable{}
	var fromOK, toOK bool
	t.from, fromOK = timeOfDay(p, at+".from", h.From)
	t.to, toOK = timeOfDay(p, at+".to", h.To)
	p.Require(!fromOK || !toOK || t.from != t.to, "%s: from and to are both %s: leave out the hours if deliveries may always begin", at, h.From)
	if t.to < t.from {
		t.to += 24 * time.Hour
	}
	var daysOK bool
	t.days, daysOK = daysOf(h.Days)
	p.Require(daysOK, "%s.days is %q: use days such as mon-fri, or sat,sun", at, h.Days)
	var unknown, err error
	if t.Zone, unknown = zones.Load(h.Zone); unknown != nil {
		if t.ZoneOf, err = route.CompileText(h.Zone); err != nil {
			if isLikeZone(h.Zone) {
				err = unknown // the text was meant to be a name
			}
			p.Add(fmt.Errorf(`%s.zone is neither the name of a zone, such as Europe/Berlin, nor an expression, such as metadata.zone || "Europe/Berlin": %w`, at, err))
		}
	}
	if h.Unless != "" {
		if t.Unless, err = route.CompileCondition(h.Unless); err != nil {
			p.Add(fmt.Errorf("%s.unless: %w", at, err))
		}
	}
	return t
}

// isLikeZone reports whether a text has only what names of zones are made of.
func isLikeZone(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/_+-:", r)
	})
}

func timeOfDay(p *Problems, at, text string) (since time.Duration, ok bool) {
	t, err := time.Parse("15:04", text)
	switch {
	case text == "":
		p.Add(fmt.Errorf("%s is missing: write a time of day, such as 08:00", at))
	case text == "24:00":
		p.Add(fmt.Errorf("%s is %q: use 00:00 for midnight", at, text))
	case err != nil:
		p.Add(fmt.Errorf("%s is %q: use a time of day, such as 08:00", at, text))
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err == nil
}

// weekdays are the names of days, in the order of time.Weekday.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// daysOf parses names and ranges of days; "" is all.
func daysOf(text string) (days [7]bool, ok bool) {
	if text == "" {
		text = "sun-sat"
	}
	for part := range strings.SplitSeq(strings.ToLower(text), ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, to := slices.Index(weekdays, first), slices.Index(weekdays, last)
		if from < 0 || to < 0 {
			return days, false
		}
		for days[to] = true; from != to; from = (from + 1) % 7 {
			days[from] = true
		}
	}
	return days, true
}
