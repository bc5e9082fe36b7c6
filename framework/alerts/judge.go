package alerts

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// ErrConfig: the configuration of a judge is not valid.
var ErrConfig = errors.New("invalid alerts")

const (
	// Period is the time between two looks at an outbox, over all of its forwarders.
	Period = 15 * time.Second
	// graces is by which part of a period the others wait longer than the judge of the last look, so that they look only
	// if that one does not.
	graces = 3
	// timeout bounds a look.
	timeout = 30 * time.Second
)

// Config is the configuration of a judge. Database, Webhooks, Period and Logger are optional.
type Config struct {
	// Settings are used with their defaults.
	Settings settings.Alerts
	// Store and DB belong to one outbox, and Publisher publishes to it.
	Store     Store
	DB        *sql.DB
	Publisher *outbox.Publisher
	// Forwarder delivers from the outbox, under its name Database in a fleet.
	Forwarder *forwarder.Forwarder
	Database  string
	// Webhooks is the name of the sink of kind webhooks, if there is one.
	Webhooks string
	// Period replaces the usual one.
	Period time.Duration
	// Logger gets a line for each alert; default: slog's.
	Logger *slog.Logger
}

// Store is what a judge needs of an outbox. Without store.Endpoints it judges no endpoints.
type Store interface {
	store.Overviewer
	store.Schedules
}

// Judge looks at one outbox and publishes its alerts. It is safe for concurrent use.
type Judge struct {
	config Config
	one    sync.Mutex // held during a look
	rested time.Time  // a look since then found no alert raised; zero if it did
}

// New returns a judge. It starts nothing. Mistakes are reported at once, as ErrConfig.
func New(c Config) (*Judge, error) {
	if c.Store == nil || c.DB == nil || c.Publisher == nil || c.Forwarder == nil {
		return nil, fmt.Errorf("%w: a judge needs a store, its database, a publisher and a forwarder", ErrConfig)
	}
	if err := c.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c.Settings = c.Settings.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Period == 0 {
		c.Period = Period
	}
	return &Judge{config: c}, nil
}

// Run looks until ctx is done, and then returns nil. It logs errors, such as those of the database, and tries again.
func (j *Judge) Run(ctx context.Context) error {
	ctx = tracing.Detach(ctx)
	trouble := pace.NewTrouble(j.config.Logger, "judging what to alert of", j.config.Period)
	for {
		wait, err := j.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = trouble.Met(err)
		default:
			trouble.Over()
		}
		pace.Sleep(ctx, wait)
	}
}

// errMoved: another judge has made this look.
var errMoved = errors.New("another judge was first")

// Look makes a look if one is due, and returns when the next one is.
func (j *Judge) Look(ctx context.Context) (wait time.Duration, err error) {
	j.one.Lock()
	defer j.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	row, err := j.row(ctx)
	if err != nil {
		return 0, err
	}
	period := j.config.Period
	if wait := row.NextTick.Sub(row.ReadAt); row.Spec != "" && wait > 0 && wait <= period { // it is more after the clock was set back
		return wait + period/graces, nil
	}
	s, err := readState(row)
	if err != nil {
		return 0, fmt.Errorf("read which alerts are raised: %w", err)
	}
	t := &turn{Judge: j, now: row.ReadAt}
	causes, err := t.find(ctx, &s)
	if err != nil {
		return 0, err
	}
	published, err := t.next(&s, causes)
	if err != nil {
		return 0, err
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	row.Spec, row.LastTick, row.NextTick = string(spec), row.ReadAt, row.ReadAt.Add(period)
	err = failpoint.Tick.Do(func() error { return j.write(ctx, row, published) })
	if errors.Is(err, errMoved) || errors.Is(err, store.ErrCollision) {
		return period / graces, nil
	}
	if err != nil {
		return 0, err
	}
	j.log(published)
	if j.rested = time.Now(); len(s.Raised) > 0 {
		j.rested = time.Time{}
	}
	return period, nil
}

// Rests reports whether a look at an outbox in which nothing has happened since a time would find nothing new.
func (j *Judge) Rests(since time.Time) bool {
	j.one.Lock()
	defer j.one.Unlock()
	return j.rested.After(since)
}

func (j *Judge) owner() string { return j.config.Forwarder.OwnerIn(j.config.Database) }

// row reads the row with the state, and adds it if it is missing.
func (j *Judge) row(ctx context.Context) (store.Schedule, error) {
	for added := false; ; added = true {
		all, err := j.config.Store.Schedules(ctx)
		if err != nil {
			return store.Schedule{}, err
		}
		for _, row := range all {
			if row.Name == store.ScheduleAlerts {
				return row, nil
			}
		}
		if added {
			return store.Schedule{}, fmt.Errorf("%w %s", store.ErrUnknownSchedule, store.ScheduleAlerts)
		}
		if err := j.config.Store.AddSchedule(ctx, store.ScheduleAlerts); err != nil {
			return store.Schedule{}, err
		}
	}
}

// write moves the row and publishes the alerts, in one short transaction.
func (j *Judge) write(ctx context.Context, row store.Schedule, published []notification.Envelope) error {
	return j.config.Publisher.RunInTx(ctx, j.config.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		switch moved, err := j.config.Store.MoveSchedule(ctx, tx, row); {
		case err != nil:
			return err
		case !moved:
			return errMoved
		case len(published) == 0:
			return nil
		}
		return j.config.Publisher.Append(ctx, tx, published...)
	})
}

// log logs what was published, and what reaches no sink.
func (j *Judge) log(published []notification.Envelope) {
	for _, e := range published {
		var r Raised
		_ = json.Unmarshal(e.Payload, &r) // next has made it
		log := j.config.Logger.With("type", e.Type, "id", e.ID, "cause", r.Cause, "sink", r.Sink, "text", r.Text)
		switch {
		case !j.config.Settings.Reaches(r.Sink):
			log.Warn("an alert reaches no one: alerts.to names only the sink that it is about")
		case e.Type == notification.AlertRaised:
			log.Warn("raised an alert", "reminder", r.Reminder)
		default:
			log.Info("cleared an alert")
		}
	}
}

// endpointPage and endpointPages bound how many endpoints a look reads. If more than endpointsAlone are disabled, as when
// the network of this machine was down, further ones share an alert.
const (
	endpointsAlone = 10

	endpointPage  = 500
	endpointPages = 10
)

// find returns the causes of alerts at this moment, and moves the marks of stalls.
func (t *turn) find(ctx context.Context, s *state) (causes []cause, err error) {
	its := t.config.Settings
	look := admin.Look{At: t.now}
	if look.Sample, err = t.config.Store.Sample(ctx, store.SampleQuery{Types: t.config.Forwarder.Takes()}); err != nil {
		return nil, err
	}
	if look.Membership, err = t.config.Store.Membership(ctx); err != nil {
		return nil, err
	}
	stalls := make(map[string]stall)
	for i := range look.Sample.Sinks {
		sample := &look.Sample.Sinks[i]
		for _, trouble := range look.Troubles(sample, admin.Usual) {
			open := trouble.What == admin.BreakerOpen && trouble.Destination == "" && its.BreakerOpen > 0
			if open || trouble.What == admin.DeadLetters && its.Dead {
				causes = append(causes, cause{trouble, !open || t.now.Sub(trouble.Since) >= its.BreakerOpen})
			}
		}
		if its.Stalled == 0 || sample.Pending == 0 || sample.Paused {
			continue
		}
		now := s.Stalls[sample.Sink]
		if now.Mark != sample.Mark || now.Since.IsZero() {
			now = stall{sample.Mark, t.now}
		}
		stalls[sample.Sink] = now
		if t.now.Sub(now.Since) >= its.Stalled+t.waits(sample.Sink) {
			causes = append(causes, cause{admin.StalledSince(sample, now.Since), true})
		}
	}
	s.Stalls = stalls
	for _, trouble := range look.Held(its.HeldTransaction) {
		causes = append(causes, cause{trouble, true})
	}
	disabled, err := t.disabled(ctx)
	return append(causes, t.together(s, disabled)...), err
}

// waits returns how long a sink keeps a notification pending on purpose, because it collects the newest of each key.
func (t *turn) waits(sink string) time.Duration {
	if s, works := t.config.Forwarder.Settings(sink); works && s.Collect.InMemory() {
		return s.Collect.MaxWait
	}
	return 0
}

// disabled returns the endpoints that were disabled because they failed.
func (t *turn) disabled(ctx context.Context) (causes []cause, err error) {
	endpoints, has := t.config.Store.(store.Endpoints)
	if !has || t.config.Webhooks == "" || !t.config.Settings.DisabledEndpoint {
		return nil, nil
	}
	q := store.EndpointQuery{Troubled: true, Limit: endpointPage}
	for range endpointPages {
		page, err := endpoints.Endpoints(ctx, nil, q)
		if err != nil {
			return nil, err
		}
		for i := range page {
			q.After = store.EndpointPlace{Tenant: page[i].Tenant, ID: page[i].ID}
			if trouble, is := admin.Disabled(t.config.Webhooks, &page[i]); is {
				causes = append(causes, cause{trouble, true})
			}
		}
		if len(page) < endpointPage {
			return causes, nil
		}
	}
	t.partial = true
	return causes, nil
}

// together makes one cause of disabled endpoints that have no alert, if there are many. Once that alert is raised, it is
// for all further ones.
func (t *turn) together(s *state, disabled []cause) (causes []cause) {
	shared := cause{admin.Trouble{Sink: t.config.Webhooks, What: admin.DisabledEndpoint}, true}
	if s.Raised[keyOf(shared.Trouble)] == nil && len(disabled) <= endpointsAlone {
		return disabled
	}
	for _, c := range disabled {
		if s.Raised[keyOf(c.Trouble)] != nil {
			causes = append(causes, c)
			continue
		}
		if shared.Count++; shared.Since.IsZero() || c.Since.Before(shared.Since) {
			shared.Since = c.Since
		}
	}
	if shared.Count > 0 {
		shared.Text = fmt.Sprintf("%d endpoints are disabled because they failed", shared.Count)
		if t.partial {
			shared.Text = "at least " + shared.Text
		}
		causes = append(causes, shared)
	}
	return causes
}
