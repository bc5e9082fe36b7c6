// Package doctor checks the database and the configuration of an outbox for problems that delay or
// stop a forwarder, or lose rows:
//
//	findings := doctor.Run(ctx, doctor.Subject{DB: db, PostgreSQL: &postgres.Config{}}, doctor.Options{})
//
// docs/doctor.md has a section for each check.
//
// No check changes a row or reads all of a large table. Three checks do more than read: listen
// sends a NOTIFY, which wakes forwarders, pooler opens a second connection, and sinks checks
// whether destinations would accept a delivery.
package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Status is the result of a check.
type Status string

// The statuses, from good to bad.
const (
	// OK means that nothing is wrong.
	OK Status = "ok"
	// Skip means that the check could not run, usually because a privilege or a part of the
	// configuration is missing. Text and Fix have the reason.
	Skip Status = "skip"
	// Warn means that something is slow, or will become a problem.
	Warn Status = "warn"
	// Fail means that deliveries are stopped or may be lost.
	Fail Status = "fail"
)

// Finding is the result of one check, with its explanation.
type Finding struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Text describes what was found, with numbers.
	Text string `json:"finding"`
	// Why explains why it matters. Fix is how to fix it: SQL, a key of the configuration or a
	// command; "" if there is nothing to fix.
	Why string `json:"why"`
	Fix string `json:"fix,omitempty"`
	// Link leads to the documentation of the check.
	Link string `json:"link"`
}

// Subject is what to check. DB and one of PostgreSQL, SQLite and MySQL are required.
type Subject struct {
	// DB is the database. Run does not close it.
	DB *sql.DB
	// PostgreSQL, SQLite or MySQL is the outbox in the database. PostgreSQL.Listen or ListenDSN
	// adds a check of the round trip of LISTEN and NOTIFY.
	PostgreSQL *postgres.Config
	SQLite     *sqlite.Config
	MySQL      *mysql.Config
	// Address is the configured address of the database, which says how its TLS is checked; ""
	// if it is not known. No finding repeats its password.
	Address string
	// Forwarder is the configuration of the outbox's forwarders; nil if it is not known, and the
	// checks then assume defaults. Its Store is not used.
	Forwarder *forwarder.Config
	// Schedules are the names of the configuration's schedules.
	Schedules []string
	// Alerts are the configuration's alerts.
	Alerts settings.Alerts
	// Mistakes is the error of loading the configuration; nil if there is none.
	Mistakes error
	// Duty is the duty of the database role, whose privileges are checked. "" means a
	// forwarder's privileges, but a missing one does not fail the check, because the role may
	// have another duty.
	Duty postgres.Duty
}

// Options select checks and set their limits. The zero value runs all checks with the default
// limits.
type Options struct {
	// Only has the ids of the checks to run; empty means all. Skip has the ids of checks to
	// leave out.
	Only, Skip []string
	// Timeout limits each check; the default is 2 s. The checks run one after another.
	Timeout time.Duration
	// HeldAfter is how long a transaction may hold the log back before it is a warning; the
	// default is 10 s.
	HeldAfter time.Duration
}

// The defaults of Options.
const (
	DefaultTimeout   = 2 * time.Second
	DefaultHeldAfter = admin.HeldAfter
)

// Validate returns an error for unknown ids of checks and negative times.
func (o Options) Validate() error {
	var faults []error
	ids := IDs()
	for _, id := range append(slices.Clone(o.Only), o.Skip...) {
		if !slices.Contains(ids, id) {
			faults = append(faults, fmt.Errorf("there is no check %q: use %s", id, strings.Join(ids, ", ")))
		}
	}
	if o.Timeout < 0 || o.HeldAfter < 0 {
		faults = append(faults, errors.New("a time is below 0"))
	}
	return errors.Join(faults...)
}

func (o Options) selects(id string) bool {
	return (len(o.Only) == 0 || slices.Contains(o.Only, id)) && !slices.Contains(o.Skip, id)
}

// IDs lists the ids of all checks, in the order in which they run.
func IDs() []string {
	ids := make([]string, len(checks))
	for i, c := range checks {
		ids[i] = c.ID
	}
	return ids
}

// Run runs the checks that apply to the database, one after another, and returns a finding for
// each. A check that cannot run is a finding, too. When ctx is done, Run ends after the current
// check.
func Run(ctx context.Context, s Subject, o Options) []Finding {
	o.Timeout, o.HeldAfter = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.HeldAfter, DefaultHeldAfter)
	return run(ctx, s, o, usual)
}

func run(ctx context.Context, s Subject, o Options, l limits) (findings []Finding) {
	x := &examination{Subject: s, Options: o, limits: l}
	x.connect(ctx)
	for _, c := range checks {
		if ctx.Err() == nil && o.selects(c.ID) && c.appliesTo(s) {
			v := x.check(ctx, c)
			findings = append(findings, Finding{c.ID, v.status, v.text, c.Why, v.fix, "docs/doctor.md#" + c.ID})
		}
	}
	return findings
}

// limits are the thresholds from which on a check warns or fails. Tests set their own.
type limits struct {
	skew      time.Duration // of clocks
	ids       int64         // age of the oldest transaction id: a warning; a failure from twice that
	dead      int64         // dead rows of a table
	slot      int64         // bytes that an active replication slot keeps
	now       func() time.Time
	typesRows int // rows, and parked deliveries, that the check types reads
	disk      func(path string) (free, all int64, known bool)
}

var usual = limits{
	skew: time.Second, ids: 800_000_000, dead: 10_000, slot: 10 << 30,
	now: time.Now, typesRows: 10_000, disk: diskOf,
}

// Store is what the checks need of an opened outbox, in addition to its Examiner.
type Store interface {
	Oldest(ctx context.Context) (*store.Row, error)
	Holders(ctx context.Context, sinks []string) ([]store.Holder, error)
	Membership(ctx context.Context) (store.Membership, error)
	Types(ctx context.Context, limit int) ([]store.TypeCount, error)
	Schedules(ctx context.Context) ([]store.Schedule, error)
	ParkedFigures(ctx context.Context) ([]store.ParkedFigures, error)
	store.Sampler
	CursorFaults(ctx context.Context) (map[string]string, error)
	Unread(ctx context.Context) error
}

// examination is one run of the checks.
type examination struct {
	Subject
	Options
	limits
	// One of these three is set, unless the database cannot be examined.
	pg   *postgres.Examiner
	lite *sqlite.Examiner
	my   *mysql.Examiner
	// store is nil if openErr is set.
	store Store
	// examineErr is why the database cannot be examined, openErr why the store cannot be opened.
	examineErr, openErr error
	// parked is the result of parkedFigures, valid if counted is true.
	parked  []store.ParkedFigures
	counted bool
}

// connect opens the examiner and the store. It reports failures in examineErr and openErr.
func (x *examination) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	switch {
	case x.PostgreSQL != nil:
		if x.pg, x.examineErr = postgres.Examine(ctx, x.DB, *x.PostgreSQL); x.examineErr == nil {
			x.store, x.openErr = opened(postgres.Open(ctx, x.DB, *x.PostgreSQL))
		}
	case x.MySQL != nil:
		if x.my, x.examineErr = mysql.Examine(ctx, x.DB, *x.MySQL); x.examineErr == nil {
			x.store, x.openErr = opened(mysql.Open(ctx, x.DB, *x.MySQL))
		}
	default:
		if x.lite, x.examineErr = sqlite.Examine(ctx, x.DB, *x.SQLite); x.examineErr == nil {
			x.store, x.openErr = opened(sqlite.Open(ctx, x.DB, *x.SQLite))
		}
	}
}

// opened returns nil instead of a store that could not be opened.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// check runs one check within the timeout.
func (x *examination) check(ctx context.Context, c Check) verdict {
	switch {
	case c.needs != nothing && x.examineErr != nil:
		return skip("the database cannot be examined: see database", "")
	case c.needs == theStore && (postgres.IsDenied(x.openErr) || mysql.IsDenied(x.openErr)):
		return x.denied(ctx, c)
	case c.needs == theStore && x.openErr != nil:
		return skip("the outbox cannot be opened: see schema", "")
	}
	bounded, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	v, err := c.run(bounded, x)
	switch advised := new(store.AdvisedError); {
	case err == nil:
		return v
	case postgres.IsDenied(err), mysql.IsDenied(err):
		return x.denied(ctx, c)
	case bounded.Err() != nil:
		return warn("raise --timeout", "no answer within %s", x.Timeout)
	case errors.As(err, &advised):
		return fail(advised.Hint, "%v", err)
	}
	return fail("", "%v", err)
}

// denied returns the verdict of a check that lacks a privilege.
func (x *examination) denied(ctx context.Context, c Check) verdict {
	if x.pg == nil {
		return skip("the user lacks a privilege", "waybill migrate --print-grants USER --for operator")
	}
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	role, err := x.pg.Role(ctx)
	if err == nil && c.grant != "" {
		return skip("the role lacks a privilege", fmt.Sprintf(c.grant, role))
	}
	missing, _ := x.pg.Missing(ctx, postgres.Operator) // on an error the check is skipped without a fix
	return skip("the role lacks a privilege", strings.Join(missing, "\n"))
}

// engine returns the forwarder's configuration with its defaults.
func (x *examination) engine() forwarder.Config {
	if x.Forwarder == nil {
		return forwarder.Config{}.WithDefaults()
	}
	return x.Forwarder.WithDefaults()
}

// verdict is the result of a check.
type verdict struct {
	status    Status
	text, fix string
}

func ok(format string, args ...any) verdict { return verdict{OK, fmt.Sprintf(format, args...), ""} }
func skip(text, fix string) verdict         { return verdict{Skip, text, fix} }
func warn(fix, format string, args ...any) verdict {
	return verdict{Warn, fmt.Sprintf(format, args...), fix}
}
func fail(fix, format string, args ...any) verdict {
	return verdict{Fail, fmt.Sprintf(format, args...), fix}
}

// some joins the first five texts, and counts the others.
func some(texts []string) string {
	if len(texts) > 5 {
		return strings.Join(texts[:5], "; ") + fmt.Sprintf("; and %d more", len(texts)-5)
	}
	return strings.Join(texts, "; ")
}

// age formats a duration for people.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Minute:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return max(time.Millisecond, d.Round(time.Millisecond)).String()
}

// count returns a number with a noun, such as "1 lane" and "2 lanes".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// size formats a number of bytes for people.
func size(bytes int64) string {
	value, unit := float64(bytes), "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	return fmt.Sprintf("%.4g %s", value, unit)
}
