package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// ErrOtherFleet means that forwarders of another fleet use the control database.
var ErrOtherFleet = errors.New("the control database is used by another fleet")

// ControlStore is what a fleet needs from its control database: an outbox to which nothing is
// published, with a separate prefix. Each database of the fleet is a sink there, with one lane.
type ControlStore interface {
	store.Leases
	Checkpoint(ctx context.Context, c store.Checkpoint) error
}

// control leases databases, and assigns them like lanes. It is for one goroutine.
type control struct {
	open     func(context.Context) (ControlStore, error)
	store    ControlStore // nil until it is open
	owner    string
	identity string // hashed
	lease    time.Duration
	trouble  *pace.Trouble
	log      *slog.Logger

	answered   time.Time // when the control database last did
	alone      bool      // works on all databases, since it has not answered for long
	heartbeat  time.Time
	announced  []string
	held       map[string]*heldLease // by name in the control database
	forwarders int
	refused    bool
}

// heldLease is a lease of one database.
type heldLease struct {
	store.Lease
	database Database
	renewed  time.Time
	leaving  bool // released when the work on it has ended
}

func newControl(open func(context.Context) (ControlStore, error), owner, identity string, lease time.Duration, log *slog.Logger) *control {
	return &control{open: open, owner: owner, identity: fmt.Sprintf("%x", sha256.Sum256([]byte(identity)))[:12], lease: lease, log: log, forwarders: 1,
		trouble: pace.NewTrouble(log, "leasing databases from the control database", 0), held: make(map[string]*heldLease)}
}

// nameOf returns a database's name in the control database. Different databases with the same name
// have separate leases; otherwise one of two fleets would treat a database as worked on that is not.
func nameOf(d Database) string {
	return fmt.Sprintf("%s@%x", d.Name, sha256.Sum256([]byte(d.Identity)))[:len(d.Name)+9]
}

// look renews, acquires and releases leases. It returns the databases that this forwarder must work
// on, and how many forwarders there are. While the control database does not answer, the forwarder
// keeps its databases, since the leases of the lanes protect each of them. If it has not answered for
// two leases, or since the start, all leases are over, and the forwarder works on all databases as it
// does without a control database. refused is an ErrOtherFleet if nothing is leased for that reason.
func (c *control) look(ctx context.Context, listed []Database, isOver func(Database) bool) (mine []Database, forwarders int, refused error) {
	bounded, cancel := context.WithTimeout(ctx, c.lease)
	defer cancel()
	if !time.Now().Before(c.trouble.Until()) {
		err := c.update(bounded, listed, isOver)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrOtherFleet):
			if refused = err; !c.refused {
				c.log.Error("no database is leased to this forwarder", "error", err)
			}
		case err != nil:
			c.trouble.Met(err)
		default:
			c.trouble.Over()
		}
		if c.refused = refused != nil; err == nil || c.refused {
			c.answered = time.Now()
		}
	}
	if c.worksAlone() {
		return listed, c.forwarders, nil
	}
	for _, h := range c.held {
		if !h.leaving {
			mine = append(mine, h.database)
		}
	}
	return mine, c.forwarders, refused
}

// worksAlone reports whether no one knows who works on which database, and logs a change.
func (c *control) worksAlone() bool {
	alone := time.Since(c.answered) > 2*c.lease
	if alone && !c.alone {
		c.log.Warn("the control database does not answer: this forwarder works on all databases until it does")
	}
	c.alone = alone
	return alone
}

// update is look while the control database answers.
func (c *control) update(ctx context.Context, listed []Database, isOver func(Database) bool) (err error) {
	if c.store == nil {
		opened, err := c.open(ctx)
		if err != nil {
			return err // with a nil pointer in the interface
		}
		c.store = opened
	}
	databases, names := make(map[string]Database, len(listed)), make([]string, 0, len(listed))
	for _, d := range listed {
		databases[nameOf(d)] = d
		names = append(names, nameOf(d))
	}
	slices.Sort(names)
	for name, h := range c.held {
		if d, is := databases[name]; is {
			h.database = d // the password may have changed
		} else {
			h.leaving = true
		}
	}
	if err := c.renew(ctx); err != nil { // first: with many databases the rest may take long
		return err
	}
	if err := c.releaseEnded(ctx, isOver); err != nil {
		return err
	}
	me := store.Member{Owner: c.owner, Sinks: names, Running: store.Running{Settings: c.identity}}
	if began := time.Now(); began.Sub(c.heartbeat) >= c.lease/3 || !slices.Equal(names, c.announced) {
		if err := c.store.Heartbeat(ctx, me, c.lease); err != nil {
			return err
		}
		c.heartbeat, c.announced = began, names
	}
	membership, err := c.store.Membership(ctx)
	if err != nil {
		return err
	}
	if err := c.checkFleet(membership.Members); err != nil {
		for _, h := range c.held {
			h.leaving = true
		}
		return err
	}
	if err := c.cut(ctx, names, &membership); err != nil {
		return err
	}
	membership.Members = slices.DeleteFunc(membership.Members, func(m store.Member) bool { return m.Settings != c.identity })
	c.forwarders = max(1, len(membership.Members))
	membership.Lanes = slices.DeleteFunc(membership.Lanes, func(l store.LaneState) bool { _, known := databases[l.Lane.Sink]; return !known })
	c.correct(&membership)
	leaving := func(l store.Lane) bool { h := c.held[l.Sink]; return h != nil && h.leaving }
	take, leave := coordinate.Assign(membership, me, leaving, 2*c.lease)
	for _, lane := range leave {
		c.held[lane.Sink].leaving = true
	}
	for _, lane := range take {
		lease, err := c.store.Acquire(ctx, lane, c.owner, c.lease)
		switch {
		case errors.Is(err, store.ErrLeaseHeld), errors.Is(err, store.ErrLanes):
			continue // another forwarder was faster
		case err != nil:
			return err
		}
		c.held[lane.Sink] = &heldLease{Lease: lease, database: databases[lane.Sink], renewed: time.Now()}
	}
	return nil
}

// checkFleet refuses to lease databases while another fleet does. The fleet whose forwarder came first
// has the control database. Another one waits until those forwarders have stopped, so that a
// rolling deployment of a new configuration works.
func (c *control) checkFleet(members []store.Member) error {
	if len(members) == 0 {
		return nil
	}
	first := slices.MinFunc(members, func(a, b store.Member) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner))
	})
	if first.Settings == c.identity {
		return nil
	}
	return fmt.Errorf("%w: that of forwarder %s, with other sinks or another outbox.prefix. This forwarder waits until the forwarders of that fleet have stopped; to keep both fleets running, give one of them another control database or schema in fleet.control",
		ErrOtherFleet, first.Owner)
}

// cut creates the lanes of new databases.
func (c *control) cut(ctx context.Context, names []string, m *store.Membership) error {
	known := make(map[string]bool, len(m.Lanes))
	for _, l := range m.Lanes {
		known[l.Lane.Sink] = true
	}
	for _, name := range names {
		if known[name] {
			continue
		}
		if _, err := c.store.Cut(ctx, name, 1, store.StartOldest); err != nil {
			return err
		}
		m.Lanes = append(m.Lanes, store.LaneState{Lane: store.NewLane(name, 0, 1)})
	}
	return nil
}

// correct adds to the membership what only this forwarder knows.
func (c *control) correct(m *store.Membership) {
	for i := range m.Lanes {
		l := &m.Lanes[i]
		switch holds := c.held[l.Lane.Sink] != nil; {
		case holds && l.Owner == "":
			l.Owner = c.owner // its lease expired while the control database did not answer
		case !holds && l.Owner == c.owner:
			l.Owner = "" // the answer to Acquire was lost
		}
	}
}

// renew renews leases. It gives up a lease that another forwarder has taken.
func (c *control) renew(ctx context.Context) error {
	for name, h := range c.held {
		if time.Since(h.renewed) < c.lease/3 {
			continue
		}
		err := c.store.Checkpoint(ctx, store.Checkpoint{Lease: h.Lease, TTL: c.lease})
		switch {
		case errors.Is(err, store.ErrServerChanged): // it has restarted; the lease is still valid
			lease, err := c.store.Acquire(ctx, h.Lane, c.owner, c.lease)
			if errors.Is(err, store.ErrLeaseHeld) {
				h.leaving = true
				continue
			}
			if err != nil {
				return err
			}
			h.Lease = lease
		case errors.Is(err, store.ErrLeaseLost):
			c.log.Warn("another forwarder has leased the database", "database", h.database.Name)
			h.leaving = true
			continue
		case err != nil:
			return fmt.Errorf("renew the lease of %s: %w", name, err)
		}
		h.renewed = time.Now()
	}
	return nil
}

// releaseEnded releases the leases of databases on which the work has ended.
func (c *control) releaseEnded(ctx context.Context, isOver func(Database) bool) error {
	for name, h := range c.held {
		if !h.leaving || !isOver(h.database) {
			continue
		}
		if err := c.store.Release(ctx, h.Lease); err != nil {
			return err
		}
		delete(c.held, name)
	}
	return nil
}

// leave ends the membership and releases all leases. The work on the databases has ended.
func (c *control) leave(ctx context.Context) {
	if c.store == nil {
		return
	}
	err := c.store.Leave(ctx, c.owner)
	for _, h := range c.held {
		err = errors.Join(err, c.store.Release(ctx, h.Lease))
	}
	if err != nil {
		c.log.Warn("the other forwarders of the fleet will notice later that this one stops", "error", err)
	}
}
