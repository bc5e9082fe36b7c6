// Package schedule publishes notifications by the clock: of all processes that run a
// schedule one makes each tick, once. The tick and its notification are one transaction, so
// neither is there without the other, whatever ends the process.
//
//	scheduler, err := schedule.New(schedule.Config{Store: store, DB: db, Publisher: publisher},
//		schedule.Schedule{
//			Name: "daily-report",
//			When: schedule.Cron("0 9 * * MON-FRI", "Europe/Berlin"),
//			Make: func(ctx context.Context, tick time.Time) (any, error) { return ReportDue{Day: tick}, nil },
//		})
//	err = scheduler.Run(ctx)
//
// What is due is decided by the database's clock. Work that takes long belongs into a
// handler of the notification, where it is retried, and not into Make.
//
// The files in the order in which to read them: schedule.go, when.go, scheduler.go, turn.go,
// tick.go.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ErrConfig: a schedule, or what runs it, makes no sense.
var ErrConfig = errors.New("invalid schedule")

// Schedule is what is published when.
type Schedule struct {
	// Name distinguishes it from the others of the outbox, in all processes: up to 63
	// letters, digits, dots, dashes and underscores, beginning with a letter or digit.
	Name string
	// When it is due: Every or Cron.
	When When
	// Missed is what becomes of ticks that could not be made in time; default One.
	Missed Missed
	// Make returns the notification of a tick: a value of a registered type, maybe with
	// options ([outbox.With]), or a [notification.Envelope], which is appended as it is; nil
	// for none this time. The id is derived from schedule and tick, unless Make sets one, and
	// the metadata MetadataSchedule and MetadataTick are added.
	//
	// tick is the time at which it was due, in UTC. Make runs outside of any transaction, and
	// several processes may call it for one tick at the same time: what one of them returns
	// is published. What is not unique ([outbox.Unique]) is not published, and the tick is
	// made. So it only looks, and changes nothing. Its context ends with Run. An
	// error, or a panic, is logged, and the tick is tried again with growing pauses up to a
	// minute; other schedules go on.
	Make func(ctx context.Context, tick time.Time) (any, error)
}

// Metadata that the notification of a tick has.
const (
	// MetadataSchedule is the schedule's name.
	MetadataSchedule = "schedule"
	// MetadataTick is the time at which it was due, as in 2026-03-01T08:00:00Z.
	MetadataTick = "tick"
)

// Missed is what becomes of ticks that are missed: while no process ran, the database was
// away, or Make failed.
type Missed string

// What there is to choose from.
const (
	// One makes the last of the ticks that are due, and passes over those before it.
	One Missed = "one"
	// Skip is One, and passes over that one too if it is more than a minute late.
	Skip Missed = "skip"
	// All makes each of them, in order, each in a transaction of its own.
	All Missed = "all"
)

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidateName reports why a schedule cannot have a name.
func ValidateName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%w: name %q: use up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", ErrConfig, s)
	}
	return nil
}

// check returns all that is wrong with schedules, and sets defaults.
func check(schedules []Schedule) ([]Schedule, error) {
	var mistakes []error
	checked := make([]Schedule, len(schedules))
	names := make(map[string]bool)
	for i, s := range schedules {
		note := func(err error) {
			if err != nil {
				mistakes = append(mistakes, fmt.Errorf("%w: schedule %s: %w", ErrConfig, s.Name, err))
			}
		}
		if err := ValidateName(s.Name); err != nil {
			mistakes = append(mistakes, err)
		}
		if names[s.Name] {
			note(errors.New("there are two of that name"))
		}
		names[s.Name] = true
		note(s.When.Err())
		if s.Make == nil {
			note(errors.New("it makes nothing: set Make"))
		}
		switch s.Missed {
		case "":
			s.Missed = One
		case One, Skip, All:
		default:
			note(fmt.Errorf("missed is %q: use one, skip or all", s.Missed))
		}
		checked[i] = s
	}
	return checked, errors.Join(mistakes...)
}
