package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/schedule"
)

// Schedule is a notification that is published by the clock; see [schedule.Schedule].
type Schedule struct {
	// When it is due, in crontab syntax: minute, hour, day of the month, month, day of the week, as
	// in 0 9 * * MON-FRI; or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `yaml:"cron"`
	// Time zone of cron, such as Europe/Berlin. Default UTC.
	Zone string `yaml:"zone"`
	// Instead of cron, the time between two ticks, in whole seconds. Ticks are multiples of it since
	// 1970-01-01T00:00:00Z: 15m is every quarter of an hour.
	Every time.Duration `yaml:"every" zero:"refused"`
	// What happens to ticks that could not be made in time: one (only the last is made), skip (a
	// tick that is more than a minute late is not made) or all (every tick is made, in order).
	// Default one.
	Missed schedule.Missed `yaml:"missed" enum:"one,skip,all"`
	// Type of the notification. Required.
	Type string `yaml:"type"`
	// Ordering key of the notification. {{tick}} in it is replaced by the time of the tick. Default:
	// none.
	Key string `yaml:"key" secret:"false"`
	// Payload of the notification, which becomes JSON. {{tick}} in a text is replaced by the time of
	// the tick, such as 2026-03-01T08:00:00Z. Default {}.
	Payload any `yaml:"payload" secret:"false"`
}

// when returns the times of cron, zone and every.
func (s Schedule) when() (schedule.When, error) {
	var when schedule.When
	switch {
	case s.Cron == "" && s.Every == 0:
		return when, errors.New("cron is missing: set cron or every")
	case s.Cron != "" && s.Every != 0:
		return when, errors.New("every and cron are both set: leave one of them out")
	case s.Cron == "" && s.Zone != "":
		return when, errors.New("zone applies to cron: leave it out with every")
	case s.Cron == "":
		when = schedule.Every(s.Every)
	default:
		when = schedule.Cron(s.Cron, s.Zone)
	}
	return when, when.Err()
}

// tick is the placeholder for the time of a tick.
const tick = "{{tick}}"

// envelope returns the notification of a tick. Its version is that of the registered type, else 1.
func (c *Config) envelope(s Schedule, at time.Time) (notification.Envelope, error) {
	e := notification.Envelope{Type: s.Type, Version: 1}
	if c.options.Types != nil {
		if info, known := c.options.Types.Lookup(s.Type); known {
			e.Version = info.Version
		}
	}
	payload, err := json.Marshal(s.Payload)
	if err != nil {
		return e, err
	}
	if s.Payload == nil {
		payload = []byte(`{}`)
	}
	text := at.Format(time.RFC3339Nano)
	e.Key = strings.ReplaceAll(s.Key, tick, text)
	e.Payload = bytes.ReplaceAll(payload, []byte(tick), []byte(text)) // inside a JSON string, which needs no escaping
	return e, nil
}

// Timetable returns the schedules for a [schedule.Scheduler], sorted by name.
func (c *Config) Timetable() []schedule.Schedule {
	timetable := make([]schedule.Schedule, 0, len(c.Schedules))
	for _, name := range slices.Sorted(maps.Keys(c.Schedules)) {
		s := c.Schedules[name]
		when, _ := s.when() // checked by Load
		timetable = append(timetable, schedule.Schedule{
			Name: name, When: when, Missed: s.Missed,
			Make: func(_ context.Context, at time.Time) (any, error) { return c.envelope(s, at) },
		})
	}
	return timetable
}

// checkSchedules reports the mistakes of the schedules, each at its line.
func (l *loader) checkSchedules(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Schedules)) {
		s, at := c.Schedules[name], keys.Join("schedules", name)
		if err := schedule.ValidateName(name); err != nil {
			l.mistake(at, "%s: a schedule's name has up to 63 letters, digits, dots, dashes and underscores, and begins with a letter or digit", at)
		}
		if _, err := s.when(); err != nil && !l.reported(keys.Join(at, "cron")) && !l.reported(keys.Join(at, "every")) {
			l.complain(at, err)
		}
		l.checkNotification(c, s, at)
	}
}

func (l *loader) checkNotification(c *Config, s Schedule, at string) {
	key, types := keys.Join(at, "type"), c.options.Types
	e, err := c.envelope(s, time.Now().UTC())
	e.ID = "id"
	known := types != nil
	switch typeErr := notification.ValidateType(s.Type); {
	case l.reported(key):
		return
	case s.Type == "":
		l.mistake(key, "%s is missing: name the type of the notification", key)
		return
	case typeErr != nil:
		l.mistake(key, "%s: %v", key, typeErr)
		return
	case known:
		if _, known = types.Lookup(s.Type); !known {
			var names []string
			for _, info := range types.Types() {
				names = append(names, info.Name)
			}
			l.mistake(key, "%s: the program has no type %q%s", key, s.Type, didYouMean(s.Type, names))
		}
	}
	if err := cmp.Or(err, e.Validate()); err != nil {
		l.mistake(at, "%s: %v", at, err)
	} else if known {
		if _, err := types.Decode(&e); err != nil {
			l.mistake(keys.Join(at, "payload"), "%s: %v", keys.Join(at, "payload"), err)
		}
	}
}
