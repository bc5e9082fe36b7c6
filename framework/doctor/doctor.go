// Package doctor checks a database and a configuration for what makes a forwarder late,
// stops it, or loses rows, before it does.
//
//	findings := doctor.Run(ctx, doctor.Subject{DB: db, PostgreSQL: &postgres.Config{}}, doctor.Options{})
//
// A check is a value in [Checks] and a small function; each topic has a file: database.go,
// transactions.go, server.go, listening.go, log.go, deliveries.go, fleet.go, privileges.go,
// sqlite.go and mysql.go. docs/doctor.md has a section for each check.
//
// No check changes a row, and none reads all of a large table. Three do more than read: listen
// sends a NOTIFY, which forwarders take for a wake-up, pooler opens a second connection, and
// sinks asks destinations whether they would take a delivery.
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

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Status is what a check comes to.
type Status string

// The statuses, from good to bad.
const (
	// OK: nothing is wrong.
	OK Status = "ok"
	// Skip: the check could not look, for want of a privilege or of something in the
	// configuration; its fix says of what.
	Skip Status = "skip"
	// Warn: something will be wrong, or is slow.
	Warn Status = "warn"
	// Fail: deliveries stand still or may be lost.
	Fail Status = "fail"
)

// Finding is what one check has found.
type Finding struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Text is what was found, with numbers.
	Text string `json:"finding"`
	// Why says why it matters, Fix what mends it: SQL, a key of the configuration or a
	// command; "" where there is nothing to mend.
	Why string `json:"why"`
	Fix string `json:"fix,omitempty"`
	// Link is the section about the check.
	Link string `json:"link"`
}

// Subject is what is examined. DB and one of PostgreSQL, SQLite and MySQL are required.
type Subject struct {
	// DB is the database, which stays the caller's.
	DB *sql.DB
	// PostgreSQL, SQLite or MySQL is the outbox in it. With PostgreSQL.Listen the round trip of
	// LISTEN and NOTIFY is checked.
	PostgreSQL *postgres.Config
	SQLite     *sqlite.Config
	MySQL      *mysql.Config
	// Forwarder is what forwarders of the outbox work with; nil: it is not known, and defaults
	// are taken. Its Store is not used.
	Forwarder *forwarder.Config
	// Schedules are the names of those that processes with this configuration run.
	Schedules []string
	// Mistakes are those of the configuration; nil if there are none.
	Mistakes error
	// Duty is what the role of the database is for. "": it may be for another one than
	// forwarding, so that a privilege of forwarding which it lacks is no failure.
	Duty postgres.Duty
}

// Options say what is checked, and from when on something is a warning. The zero value is
// the usual one.
type Options struct {
	// Only and Skip are ids of checks: those to make, all by default, and those to leave out.
	Only, Skip []string
	// Timeout bounds each check; default 2 s. The checks are made one after the other.
	Timeout time.Duration
	// HeldAfter is how long a transaction may hold the log; default 10 s.
	HeldAfter time.Duration
}

// The defaults of Options.
const (
	DefaultTimeout   = 2 * time.Second
	DefaultHeldAfter = 10 * time.Second
)

// Validate refuses ids that no check has, and times that are not above 0.
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

// IDs lists the ids of all checks, in their order.
func IDs() []string {
	ids := make([]string, len(checks))
	for i, c := range checks {
		ids[i] = c.ID
	}
	return ids
}

// Run makes the checks that fit the database, one after the other, and returns a finding for
// each. It never fails as a whole: what cannot be looked at is a finding too. A done ctx ends it
// between two checks.
func Run(ctx context.Context, s Subject, o Options) []Finding {
	o.Timeout, o.HeldAfter = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.HeldAfter, DefaultHeldAfter)
	return run(ctx, s, o, usual)
}

func run(ctx context.Context, s Subject, o Options, l limits) (findings []Finding) {
	x := &examination{Subject: s, Options: o, limits: l}
	x.connect(ctx)
	for _, c := range checks {
		if ctx.Err() == nil && o.selects(c.ID) && c.fits(s) {
			v := x.make(ctx, c)
			findings = append(findings, Finding{c.ID, v.status, v.text, c.Why, v.fix, "docs/doctor.md#" + c.ID})
		}
	}
	return findings
}

// limits are from when on something is found. Tests have others.
type limits struct {
	skew      time.Duration // of clocks
	lag       time.Duration // of a sink
	slack     time.Duration // of retention
	ids       int64         // transactions to the oldest id: a warning, and twice it is a failure
	dead      int64         // rows of a table that may be dead
	slot      int64         // bytes that an active slot may keep
	now       func() time.Time
	typesRows int
	disk      func(path string) (free, all int64, known bool)
}

var usual = limits{
	skew: time.Second, lag: 5 * time.Minute, slack: time.Hour, ids: 800_000_000, dead: 10_000, slot: 10 << 30,
	now: time.Now, typesRows: 10_000, disk: diskOf,
}

// Store is what checks ask of an outbox, beside its Examiner.
type Store interface {
	Oldest(ctx context.Context) (*store.Row, error)
	Holders(ctx context.Context, sinks []string) ([]store.Holder, error)
	Membership(ctx context.Context) (store.Membership, error)
	Types(ctx context.Context, limit int) ([]store.TypeCount, error)
	Schedules(ctx context.Context) ([]store.Schedule, error)
	ParkedFigures(ctx context.Context) ([]store.ParkedFigures, error)
	store.Sampler
	CursorFaults(ctx context.Context) (map[string]string, error)
}

var (
	_ Store = (*postgres.Store)(nil)
	_ Store = (*sqlite.Store)(nil)
	_ Store = (*mysql.Store)(nil)
)

// examination is one run.
type examination struct {
	Subject
	Options
	limits
	pg     *postgres.Examiner // nil for the others, and where nothing answers
	lite   *sqlite.Examiner
	my     *mysql.Examiner
	store  Store // nil where it cannot be opened
	lost   error // why nothing answers
	closed error // why the store cannot be opened
	// parked is what is parked, once that was counted.
	parked  []store.ParkedFigures
	counted bool
}

// connect is what all checks of the database begin with.
func (x *examination) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	if x.PostgreSQL != nil {
		if x.pg, x.lost = postgres.Examine(ctx, x.DB, *x.PostgreSQL); x.lost == nil {
			var s *postgres.Store
			if s, x.closed = postgres.Open(ctx, x.DB, *x.PostgreSQL); x.closed == nil {
				x.store = s
			}
		}
		return
	}
	if x.MySQL != nil {
		if x.my, x.lost = mysql.Examine(ctx, x.DB, *x.MySQL); x.lost == nil {
			var s *mysql.Store
			if s, x.closed = mysql.Open(ctx, x.DB, *x.MySQL); x.closed == nil {
				x.store = s
			}
		}
		return
	}
	if x.lite, x.lost = sqlite.Examine(ctx, x.DB, *x.SQLite); x.lost == nil {
		var s *sqlite.Store
		if s, x.closed = sqlite.Open(ctx, x.DB, *x.SQLite); x.closed == nil {
			x.store = s
		}
	}
}

// make makes one check, within its time.
func (x *examination) make(ctx context.Context, c Check) verdict {
	switch {
	case c.needs != nothing && x.lost != nil:
		return skip("the database cannot be examined: see database", "")
	case c.needs == theStore && (postgres.IsDenied(x.closed) || mysql.IsDenied(x.closed)):
		return x.denied(ctx, c)
	case c.needs == theStore && x.closed != nil:
		return skip("the outbox cannot be opened: see schema", "")
	}
	bounded, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	v, err := c.look(bounded, x)
	switch advised := new(store.AdvisedError); {
	case err == nil:
		return v
	case postgres.IsDenied(err), mysql.IsDenied(err):
		return x.denied(ctx, c)
	case bounded.Err() != nil:
		return warn("--timeout", "no answer within %s", x.Timeout)
	case errors.As(err, &advised):
		return fail(advised.Hint, "%v", err)
	}
	return fail("", "%v", err)
}

// denied is what a check comes to that lacks a privilege.
func (x *examination) denied(ctx context.Context, c Check) verdict {
	if x.pg == nil {
		return skip("the user may not look", "waybill migrate --print-grants USER --for operator")
	}
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	role, err := x.pg.Role(ctx)
	if err == nil && c.grant != "" {
		return skip("the role may not look", fmt.Sprintf(c.grant, role))
	}
	missing, _ := x.pg.Missing(ctx, postgres.Operator) // without them the check is skipped all the same
	return skip("the role may not look", strings.Join(missing, "\n"))
}

// engine is the forwarder's configuration with its defaults.
func (x *examination) engine() forwarder.Config {
	if x.Forwarder == nil {
		return forwarder.Config{}.WithDefaults()
	}
	return x.Forwarder.WithDefaults()
}

// verdict is what a check says.
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

// some is a list for a finding: its first five.
func some(texts []string) string {
	if len(texts) > 5 {
		return strings.Join(texts[:5], "; ") + fmt.Sprintf("; and %d more", len(texts)-5)
	}
	return strings.Join(texts, "; ")
}

// age is a duration for people.
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

// count is a number of things, such as 1 lane and 2 lanes.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// size is a number of bytes for people.
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
