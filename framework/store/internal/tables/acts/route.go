package acts

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// This file changes which types the sinks take. Whether a row is covered, so that a sink has it, will
// read it, or it is parked as unrouted, depends on what the sinks took when they passed it. So the
// change is made while no forwarder works on the lanes: what takes part then stands still, and each
// row is judged by what was taken up to the cursors and by what is taken after them.

// noRoute is the error of a delivery that is parked by a change of routes.
const noRoute = "the sinks of its routes had not delivered it when the routes were changed, and no route matches its type now"

// routeSpan is how many offsets one statement of a change covers at most, moveRows how many
// deliveries; and settledByRoute is how many rows are settled for SinkUnrouted out of order.
const (
	routeSpan      = 5_000
	moveRows       = 1_000
	settledByRoute = 16_000
)

// awaitsRoute is for how long a notification without a route waits for one: what has been parked for longer goes to a
// route that is added only if a person reroutes it.
const awaitsRoute = time.Hour

// routeTime limits each transaction of a change, which others wait for.
const routeTime = 30 * time.Second

// takenUpRows is how many such notifications at most go to their sinks with the change of the routes: during it the sinks
// deliver nothing else. If there are more, all of them wait for a person.
const takenUpRows = 10_000

// errMoved is that cursors were leased, or other types wanted, while the types were changed.
var errMoved = errors.New("the sinks are being worked on")

// routed is what a sink takes before and after a change.
type routed struct {
	sink        string
	cursors     []tables.Cursor
	known       bool // false: it takes nothing yet
	before, now notification.TypeFilter
	changes     bool
}

func newRouted(cursors []tables.Cursor) *routed {
	r := &routed{sink: cursors[0].Sink, cursors: cursors}
	for i := range cursors {
		if c := &cursors[i]; c.Types != nil {
			r.known, r.before = true, *c.Types
		}
		if c := &cursors[i]; c.Wanted != nil {
			r.changes, r.now = true, *c.Wanted
		}
	}
	if !r.changes {
		r.now = r.before
	}
	return r
}

// forgotten returns a sink that took something until it was forgotten, as SinkUnrouted keeps it until the
// next change.
func forgotten(p *tables.Past) *routed {
	return &routed{sink: store.SinkUnrouted, cursors: []tables.Cursor{p.Cursor}, known: true, before: p.Types, changes: true}
}

// isIdle reports whether no one works on it since every type has a route. Before its types are known, it
// has to read all after its cursors.
func (r *routed) isIdle() bool { return r.known && r.before.None() }

// floor is an offset up to which all rows are settled.
func (r *routed) floor() int64 {
	floor := r.cursors[0].Place.Through
	for i := range r.cursors {
		floor = min(floor, r.cursors[i].Place.Through)
	}
	return floor
}

func (r *routed) isElsewhere() bool {
	return slices.ContainsFunc(r.cursors, func(c tables.Cursor) bool { return c.Place.Conflict != "" })
}

// routing is a change of what the sinks take.
type routing struct {
	sinks    []*routed // with cursors, by name
	unrouted *routed   // nil: it has no cursors
}

// changing returns the sinks that take other types.
func (r *routing) changing() (changing []*routed) {
	for _, s := range r.sinks {
		if s.changes {
			changing = append(changing, s)
		}
	}
	return changing
}

// moving returns the sinks on whose lanes no forwarder works during the change.
func (r *routing) moving() []*routed {
	if r.unrouted == nil {
		return r.changing()
	}
	return append(r.changing(), r.unrouted)
}

// names returns the sinks with cursors.
func (r *routing) names() (names []string) {
	for _, s := range r.sinks {
		names = append(names, s.sink)
	}
	if r.unrouted != nil {
		names = append(names, r.unrouted.sink)
	}
	return names
}

// left returns the types that none of the filters selects; none if one of them selects all but the
// reserved types. See route.Table.Unrouted.
func left(filters []notification.TypeFilter) notification.TypeFilter {
	l := notification.AllTypes
	for _, f := range filters {
		if f.Except {
			return notification.TypeFilter{}
		}
		l.Names, l.Prefixes = append(l.Names, f.Names...), append(l.Prefixes, f.Prefixes...)
	}
	l.Names, l.Prefixes = slices.Compact(slices.Sorted(slices.Values(l.Names))), slices.Compact(slices.Sorted(slices.Values(l.Prefixes)))
	return l
}

// Route changes what sinks take; see store.Leases.
func (t *Acts) Route(ctx context.Context, sinks map[string]notification.TypeFilter) (done bool, err error) {
	done, err = t.route(ctx, sinks)
	if errors.Is(err, errMoved) {
		return false, nil
	}
	if err != nil {
		return false, t.run.Failed(err, "change the types that sinks take")
	}
	return done, nil
}

func (t *Acts) route(ctx context.Context, sinks map[string]notification.TypeFilter) (done bool, err error) {
	if err := t.want(ctx, sinks); err != nil {
		return false, err
	}
	r, err := t.routing(ctx, t.run.Own())
	if err != nil || len(r.changing()) == 0 && (r.unrouted == nil || !r.unrouted.changes) {
		return err == nil, err
	}
	moving := r.moving()
	if slices.ContainsFunc(moving, func(s *routed) bool { return !s.free() }) {
		return false, nil
	}
	covers := t.run.Source == nil && r.unrouted != nil && !slices.ContainsFunc(moving, (*routed).isElsewhere)
	if !r.isMade() {
		err = t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, r *routing) error { return t.endLeases(ctx, tx, r) })
		if err == nil && covers && slices.ContainsFunc(r.sinks, func(s *routed) bool { return s.known }) { // otherwise nothing was taken yet
			err = t.coverRows(ctx, r)
		}
		if err == nil {
			err = t.routeNow(ctx, r)
		}
		if err == nil {
			r, err = t.routing(ctx, t.run.Own())
		}
	}
	recent := false
	if covers && err == nil {
		recent, err = t.mayTakeUp(ctx, r)
	}
	for more := covers; more && err == nil; {
		err = t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, r *routing) (err error) {
			more, err = t.moveToSinks(ctx, tx, r, recent)
			return err
		})
	}
	if err != nil {
		return false, err
	}
	waits := r.unrouted != nil && r.unrouted.changes && !r.isKnown()
	return !waits, t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, _ *routing) error {
		_, err := t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET types_wanted = NULL
			WHERE types_wanted = types OR types_wanted IS NOT NULL AND types IS NOT NULL AND sink = ?`, store.SinkUnrouted)))
		return err
	})
}

// isMade reports whether the sinks take what they shall take, so that only what is parked has to be moved.
// The types stay wanted until then, so that no sink reads meanwhile, and a crash leaves nothing half done.
func (r *routing) isMade() bool {
	made := func(s *routed) bool { return s.known && reflect.DeepEqual(s.before, s.now) }
	return !slices.ContainsFunc(r.changing(), func(s *routed) bool { return !made(s) }) && (r.unrouted == nil || made(r.unrouted) || !r.isKnown())
}

// want stores the types that sinks shall take.
func (t *Acts) want(ctx context.Context, sinks map[string]notification.TypeFilter) error {
	if len(sinks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, routeTime)
	defer cancel()
	return t.run.InTxOf(ctx, failpoint.WantTypes, slices.Collect(maps.Keys(sinks)), func(tx *sql.Tx) error {
		for _, sink := range slices.Sorted(maps.Keys(sinks)) {
			types := sinks[sink]
			wanted := tables.EncodeTypes(&types)
			_, err := t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET types_wanted = CASE WHEN types = ? THEN NULL ELSE ? END WHERE sink = ?`, wanted, wanted, sink)))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// routing reads what the sinks take.
func (t *Acts) routing(ctx context.Context, q tables.Querier) (*routing, error) {
	cursors, err := t.run.Placed(ctx, q, "")
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(cursors, func(c tables.Cursor) bool { return c.Sink == store.SinkUnrouted }) { // or idle
		idle, err := t.run.Placed(ctx, q, store.SinkUnrouted)
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, idle...)
	}
	if err := t.placePast(ctx, q, cursors); err != nil {
		return nil, err
	}
	r := &routing{}
	var after []notification.TypeFilter
	for lanes := range tables.SinksOf(cursors) {
		s := newRouted(lanes)
		if s.sink == store.SinkUnrouted {
			r.unrouted = s
			for i := range s.past() {
				r.sinks = append(r.sinks, forgotten(&s.past()[i]))
			}
			continue
		}
		r.sinks, after = append(r.sinks, s), append(after, s.now)
	}
	if r.unrouted != nil {
		r.unrouted.now = left(after)
	}
	return r, nil
}

// standing runs a part of a change in a transaction for which checkpoints wait. It fails with errMoved
// if r is no longer the change.
func (t *Acts) standing(ctx context.Context, r *routing, do func(ctx context.Context, tx *sql.Tx, r *routing) error) error {
	ctx, cancel := context.WithTimeout(ctx, routeTime)
	defer cancel()
	return t.run.InTxOf(ctx, failpoint.Route, r.names(), func(tx *sql.Tx) error {
		again, err := t.routing(ctx, tx)
		if err != nil {
			return err
		}
		if !again.is(r) || slices.ContainsFunc(again.moving(), func(s *routed) bool { return !s.free() }) {
			return errMoved
		}
		return do(ctx, tx, again)
	})
}

// endLeases ends leases that have expired, so that a forwarder that does not know it yet, as when the clock was
// set ahead, writes no checkpoint any more. It would pass rows by the former types.
func (t *Acts) endLeases(ctx context.Context, tx *sql.Tx, r *routing) error {
	for _, s := range r.moving() {
		if _, err := t.run.Exec(ctx, tx, `UPDATE {cursors} SET owner = NULL, lease_until = NULL WHERE sink = ? AND owner IS NOT NULL`, s.sink); err != nil {
			return err
		}
	}
	return nil
}

// is reports whether both are the same change.
func (r *routing) is(other *routing) bool {
	return (r.unrouted == nil) == (other.unrouted == nil) && slices.EqualFunc(r.sinks, other.sinks, func(a, b *routed) bool {
		return a.sink == b.sink && a.changes == b.changes && reflect.DeepEqual(a.now, b.now)
	})
}

// coverRows parks the rows that would be no one's after the change.
func (t *Acts) coverRows(ctx context.Context, r *routing) error {
	if r.unrouted.isIdle() {
		if err := t.beginUnrouted(ctx, r); err != nil {
			return err
		}
	}
	var last sql.NullInt64
	if err := t.run.Row(ctx, t.run.Own(), `SELECT max("offset") FROM {log} {whole log}`).Scan(&last); err != nil {
		return err
	}
	for from := r.unsettled(); from < last.Int64; from += routeSpan {
		err := t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, r *routing) error {
			return t.parkUncovered(ctx, tx, r, from, from+routeSpan)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unsettled returns an offset up to which no row can become uncovered: SinkUnrouted has passed what
// a sink begins to take, and a sink what it ceases to take.
func (r *routing) unsettled() int64 {
	floor := r.unrouted.floor()
	for _, s := range r.changing() {
		if !s.before.None() {
			floor = min(floor, s.floor())
		}
	}
	return floor
}

// beginUnrouted lets SinkUnrouted begin here: no one worked on it while every type had a route.
func (t *Acts) beginUnrouted(ctx context.Context, r *routing) error {
	at, err := t.run.Dialect.Beginning(ctx, time.Time{})
	if err != nil {
		return err
	}
	return t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, _ *routing) error {
		if at.Holds != nil {
			if err := at.Holds(ctx, tx); err != nil {
				return err
			}
		}
		_, err := t.run.Exec(ctx, tx, `UPDATE {cursors} SET position = ?, settled = '' WHERE sink = ?`, tables.NullText(at.Position), store.SinkUnrouted)
		return err
	})
}

// parkUncovered parks rows of some offsets under SinkUnrouted that no sink has, or will read.
func (t *Acts) parkUncovered(ctx context.Context, tx *sql.Tx, r *routing, after, upTo int64) error {
	d := t.run.Dialect
	where := tables.SQL(`"offset" > ? AND "offset" <= ? AND `+tables.NotCancelled+` AND NOT ?`, after, upTo, isParked(store.SinkUnrouted))
	u, settled := r.unrouted, t.run.SettledInAny(r.unrouted.cursors)
	where.And(`NOT (? AND NOT ?)`, t.run.OfTypes(u.now), settled)
	dropped := []tables.Expr{tables.SQL(`(? AND NOT ? AND NOT ?)`, t.run.OfTypes(u.before), t.run.OfTypes(u.now), settled)}
	for _, s := range r.sinks {
		where.And(`NOT ?`, t.has(s))
		if !s.changes {
			continue
		}
		settled := t.run.SettledInAny(s.cursors)
		where.And(`NOT (? AND NOT ?)`, t.run.OfTypes(s.now), settled)
		dropped = append(dropped, tables.SQL(`(? AND NOT ? AND NOT ?)`, t.run.OfTypes(s.before), t.run.OfTypes(s.now), settled))
	}
	where.And(`(?)`, tables.Join(` OR `, dropped))
	_, err := t.run.Exec(ctx, tx, `INSERT INTO {parked} (sink, {envelope}, state, attempt, due_at, last_error)
		SELECT ?, {envelope}, CASE WHEN early THEN 'scheduled' ELSE 'dead' END, CASE WHEN early THEN 0 ELSE 1 END,
			CASE WHEN early THEN `+d.DueTime(`deliver_at`)+` END, CASE WHEN early THEN '' ELSE ? END
		FROM (SELECT {logged}, deliver_at IS NOT NULL AND `+d.LogTime(`deliver_at`)+` > `+d.LogTime(onceNow)+` AS early FROM {log} o WHERE ? {whole log parked}) o`,
		store.SinkUnrouted, noRoute, where)
	return err
}

// has is the condition that a sink has a row: it has delivered or parked it or, if it takes the same
// types after the change, it will read it.
func (t *Acts) has(s *routed) tables.Expr {
	if !s.changes {
		return tables.SQL(`(?)`, t.took(s))
	}
	return tables.SQL(`(? AND ?)`, t.run.SettledInAny(s.cursors), t.took(s))
}

// moveToSinks moves what is parked under SinkUnrouted and has a route now: what is scheduled, what has not been
// there for long, as when a program starts later than the ones that publish for it, and what a sink of its
// type reads from the log itself, which must not be delivered twice. It moves some, and reports whether there may be
// more.
func (t *Acts) moveToSinks(ctx context.Context, tx *sql.Tx, r *routing, recent bool) (more bool, err error) {
	takes := make(map[string]notification.TypeFilter)
	reads := []tables.Expr{tables.SQL(`false`)}
	types := []tables.Expr{tables.SQL(`false`)}
	for _, s := range r.sinks {
		if s.now.None() {
			continue
		}
		takes[s.sink] = s.now
		types = append(types, t.run.OfTypes(s.now))
		reads = append(reads, tables.SQL(`(? AND NOT ?)`, t.run.OfTypes(s.now), t.run.SettledInAny(s.cursors)))
	}
	found, err := tables.List(ctx, t.run, tx, scanUnrouted, `SELECT "offset", id, type FROM {parked} p WHERE sink = ? AND (?) AND (state = 'scheduled' OR ? OR EXISTS (
			SELECT 1 FROM {log} WHERE "offset" = p."offset" AND id = p.id AND (?)))
		ORDER BY "offset", id {limit} ? {whole log parked}`, store.SinkUnrouted, tables.Join(` OR `, types), t.takenUp(recent), tables.Join(` OR `, reads), moveRows)
	if err != nil || len(found) == 0 {
		return false, err
	}
	changed, err := t.moveRead(ctx, tx, r, takes, found)
	if err == nil {
		err = t.raiseRevisions(ctx, tx, changed)
	}
	return len(found) == moveRows, err
}

// takenUp is the condition that a delivery under SinkUnrouted, called p, is taken up by a route that is added: it has
// waited for less than awaitsRoute, and so has all of its key before it, which otherwise would come after it.
func (t *Acts) takenUp(recent bool) tables.Expr {
	if !recent {
		return tables.SQL(`false`)
	}
	return tables.SQL(`(first_parked_at >= ? AND ("key" = '' OR NOT EXISTS (
			SELECT 1 FROM {parked} e WHERE e.sink = p.sink AND e."key" = p."key" AND e."offset" < p."offset" AND e.state <> 'scheduled' AND e.first_parked_at < ?)))`,
		t.run.Dialect.NowPlus(-awaitsRoute), t.run.Dialect.NowPlus(-awaitsRoute))
}

// mayTakeUp reports whether what would be taken up is little enough to do so while the sinks stand still.
func (t *Acts) mayTakeUp(ctx context.Context, r *routing) (few bool, err error) {
	types := []tables.Expr{tables.SQL(`false`)}
	for _, s := range r.sinks {
		if !s.now.None() {
			types = append(types, t.run.OfTypes(s.now))
		}
	}
	var n int
	err = t.run.Row(ctx, t.run.Own(), `SELECT count(*) FROM (SELECT 1 FROM {parked} p WHERE sink = ? AND (?) AND ? {limit} ?) few {whole parked}`,
		store.SinkUnrouted, tables.Join(` OR `, types), t.takenUp(true), takenUpRows+1).Scan(&n)
	return n <= takenUpRows, err
}

// moveRead parks deliveries for the sinks that have passed their rows.
func (t *Acts) moveRead(ctx context.Context, tx *sql.Tx, r *routing, takes map[string]notification.TypeFilter, found []unrouted) (changed []string, err error) {
	for _, s := range r.sinks {
		refs := refsOf(found, takes[s.sink])
		if len(refs) == 0 {
			continue
		}
		reads, err := t.unsettledOf(ctx, tx, s.cursors, refs)
		if err != nil {
			return nil, err
		}
		refs = slices.DeleteFunc(refs, func(ref store.Ref) bool { return reads[ref] })
		if len(refs) == 0 {
			continue
		}
		if _, err := t.parkUnrouted(ctx, tx, s.sink, refs); err != nil {
			return nil, err
		}
		changed = append(changed, s.sink)
	}
	return append(changed, store.SinkUnrouted), t.run.Unpark(ctx, tx, store.SinkUnrouted, refsOf(found, notification.AllTypes))
}

// routeNow lets the sinks take what they shall take.
func (t *Acts) routeNow(ctx context.Context, r *routing) error {
	return t.standing(ctx, r, func(ctx context.Context, tx *sql.Tx, r *routing) error {
		if t.run.Source == nil && r.unrouted != nil && !r.unrouted.isElsewhere() {
			if err := t.settleDelivered(ctx, tx, r); err != nil {
				return err
			}
		}
		var last sql.NullInt64
		if err := t.run.Row(ctx, tx, `SELECT max("offset") FROM {log} {whole log}`).Scan(&last); err != nil {
			return err
		}
		for _, s := range r.changing() {
			if s.sink == store.SinkUnrouted {
				continue // forgotten
			}
			if err := t.setTypes(ctx, tx, s, r.pastOf(s, last.Int64)); err != nil {
				return err
			}
		}
		if r.unrouted == nil || !r.isKnown() {
			return nil
		}
		return t.setTypes(ctx, tx, r.unrouted, nil)
	})
}

// isKnown reports whether SinkUnrouted can know what it takes. It cannot while sinks of an earlier schema
// have not said what they take: what waits for them would be parked as unrouted.
func (r *routing) isKnown() bool {
	return r.unrouted.known || !slices.ContainsFunc(r.sinks, func(s *routed) bool { return !s.known && !s.changes })
}

// leaveUnrouted makes SinkUnrouted take what a sink that is being forgotten took. What is committed from
// now on is no one's until it does so, which begins at a place that is still valid.
func (t *Acts) leaveUnrouted(ctx context.Context, tx *sql.Tx, sink string, at tables.Beginning) error {
	if at.Holds != nil {
		if err := at.Holds(ctx, tx); err != nil {
			return err
		}
	}
	cursors, err := t.run.Cursors(ctx, tx, sink)
	if err != nil || len(cursors) == 0 || cursors[0].Types == nil || cursors[0].Types.None() {
		return err
	}
	unrouted, err := t.run.Cursors(ctx, tx, store.SinkUnrouted)
	if err != nil || len(unrouted) == 0 {
		return err
	}
	raw, err := json.Marshal(append(unrouted[0].Past, tables.Past{Types: *cursors[0].Types, Slots: store.NewLane(sink, 0, 1).Slots, Position: at.Position}))
	if err != nil {
		return err
	}
	_, err = t.run.Exec(ctx, tx, `UPDATE {cursors} SET types_before = ? WHERE sink = ? AND lane = 0`, string(raw), store.SinkUnrouted)
	if err != nil {
		return err
	}
	_, err = t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET types_wanted = types WHERE sink = ?`, store.SinkUnrouted)))
	return err
}

func (t *Acts) setTypes(ctx context.Context, tx *sql.Tx, s *routed, past []tables.Past) error {
	_, err := t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET types = ?, types_wanted = ? WHERE sink = ?`, tables.EncodeTypes(&s.now), tables.EncodeTypes(&s.now), s.sink)))
	if err != nil {
		return err
	}
	var before sql.NullString
	if len(past) > 0 {
		raw, err := json.Marshal(past)
		if err != nil {
			return err
		}
		before = sql.NullString{String: string(raw), Valid: true}
	}
	_, err = t.run.Exec(ctx, tx, `UPDATE {cursors} SET types_before = ? WHERE sink = ? AND lane = 0`, before, s.sink)
	return err
}

// settleDelivered settles for SinkUnrouted the rows after its cursors that sinks have delivered while
// they took their types. It has nothing to park of them.
func (t *Acts) settleDelivered(ctx context.Context, tx *sql.Tx, r *routing) error {
	had := []tables.Expr{tables.SQL(`false`)}
	for _, s := range r.changing() {
		if !s.before.None() && !s.isElsewhere() {
			had = append(had, t.has(s))
		}
	}
	u := r.unrouted
	if len(had) == 1 || u.now.None() {
		return nil
	}
	for i := range u.cursors {
		c := &u.cursors[i]
		delivered, err := tables.Column[int64](ctx, t.run, tx, `SELECT "offset" FROM {log} WHERE "offset" > ? AND {slot} BETWEEN ? AND ? AND NOT ? AND ? AND (?) ORDER BY "offset" {limit} ? {whole log}`,
			c.Place.Through, c.StoreLane.Slots.First, c.StoreLane.Slots.Last, t.run.Settled(c), t.run.OfTypes(u.now), tables.Join(` OR `, had), settledByRoute)
		if err != nil {
			return err
		}
		_, err = t.run.Exec(ctx, tx, `UPDATE {cursors} SET settled = ? WHERE sink = ? AND lane = ?`, store.EncodeOffsets(store.JoinOffsets(append(store.OffsetRanges(delivered...), c.Ahead...))), u.sink, c.Lane)
		if err != nil {
			return err
		}
	}
	return nil
}
