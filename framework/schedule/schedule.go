// Package schedule publishes notifications by the clock. Any number of processes may run the
// same schedule: one of them makes each tick, once. The tick and its notification are one
// transaction, so a process that dies cannot leave one without the other.
//
//	scheduler, err := schedule.New(schedule.Config{Store: store, DB: db, Publisher: publisher},
//		schedule.Schedule{
//			Name: "daily-report",
//			When: schedule.Cron("0 9 * * MON-FRI", "Europe/Berlin"),
//			Make: func(ctx context.Context, tick time.Time) (any, error) { return ReportDue{Day: tick}, nil },
//		})
//	err = scheduler.Run(ctx)
//
// The database's clock decides what is due. Do work that takes long in a handler of the
// notification, where it is retried, and not in Make.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ErrConfig: a schedule, or the configuration of the scheduler, is not valid.
var ErrConfig = errors.New("invalid schedule")

// Schedule says what to publish, and when.
type Schedule struct {
	// Name identifies the schedule in the outbox, across all processes: up to 63 letters,
	// digits, dots, dashes and underscores, beginning with a letter or digit.
	Name string
	// When says when ticks are due: Every or Cron.
	When When
	// Missed says what happens to ticks that could not be made in time; default One.
	Missed Missed
	// Make returns the notification of a tick: a value of a registered type, possibly with
	// options ([outbox.With]), or a [notification.Envelope], which is appended as it is. nil
	// means that this tick publishes nothing. Unless Make sets an id, it is derived from
	// schedule and tick. The metadata MetadataSchedule and MetadataTick are added.
	//
	// tick is the time at which the tick is due, in UTC. Make runs outside of any transaction,
	// and several processes may call it for the same tick at the same time: the result of one
	// of them is published. So Make must have no side effects. If the notification is a
	// duplicate ([outbox.Unique]), the tick is made without it. Make's context ends with Run.
	//
	// If Make fails or panics, that is logged, and the tick is tried again after growing pauses
	// of up to a minute. Other schedules go on.
	Make func(ctx context.Context, tick time.Time) (any, error)
}

// Metadata of the notification of a tick.
const (
	// MetadataSchedule is the schedule's name.
	MetadataSchedule = "schedule"
	// MetadataTick is the time at which the tick was due, such as 2026-03-01T08:00:00Z.
	MetadataTick = "tick"
)

// Missed says what happens to missed ticks: those due while no process ran, while the database
// was down, or while Make failed.
type Missed string

// The rules for missed ticks.
const (
	// One makes only the last of the ticks that are due.
	One Missed = "one"
	// Skip is like One, but also skips that tick if it is more than a minute late.
	Skip Missed = "skip"
	// All makes each of them, in order, each in its own transaction.
	All Missed = "all"
)

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidateName reports why a name is not valid for a schedule, as ErrConfig.
func ValidateName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%w: name %q: use up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", ErrConfig, s)
	}
	return nil
}

// check reports all mistakes in schedules and returns them with defaults.
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
			note(errors.New("another schedule has the same name"))
		}
		names[s.Name] = true
		note(s.When.Err())
		if s.Make == nil {
			note(errors.New("the function Make is not set"))
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
