package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// destination is what all processes deliver to under the name of a sink.
type destination struct {
	world *world
	name  string // and what kind of sink it is

	mode     string
	all      bool               // the mode is for each delivery
	calls    map[string][]*call // by id
	inFlight map[string]int     // by process and key
	busy     atomic.Int64       // batches and deliveries that have not returned
}

// call is an attempt of a delivery.
type call struct {
	node       *node
	begin, end time.Time
	ok         bool
	refused    bool // permanently
	late       bool // the engine may not have learned its result
	together   *together
	deaf       bool // it outlasts its context, and the engine abandons it
	attempt    int
}

// together is the collection of a call.
type together struct{ id, members string }

const callTimeout = 3 * time.Second

// become changes how a destination answers. Some modes are for some deliveries only, unless they are for all.
func (d *destination) become(mode string, all bool) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.mode, d.all = mode, all
}

// errGone is the answer to a process that was killed.
var errGone = errors.New("the process was killed")

// deliver is an attempt of a process, which it adds to calls.
func (d *destination) deliver(ctx context.Context, n *node, v *notification.Delivery, calls *[]*call) (err error) {
	w := d.world
	n.waitPaused(ctx)
	if n.port.dead.Load() {
		return errGone
	}
	d.busy.Add(1)
	defer d.busy.Add(-1)
	c, mode, draw := d.begin(ctx, n, v)
	*calls = append(*calls, c)
	defer func() {
		if p := recover(); p != nil {
			_ = d.end(ctx, c, v, errors.New("panics"))
			panic(p)
		}
		err = d.end(ctx, c, v, err)
	}()
	if err := takesTime(ctx, time.Duration(draw%20)*time.Millisecond); err != nil {
		return err
	}
	if mode != "ok" {
		w.count("answers " + mode)
	}
	return answerAs(ctx, mode, draw)
}

// begin notes that a call begins, and says how it is answered: with a mode, and a number up to 999 for what is at
// random in it. What a batch tries after it was abandoned is deaf too.
func (d *destination) begin(ctx context.Context, n *node, v *notification.Delivery) (c *call, mode string, draw int) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	c = &call{node: n, begin: time.Now(), attempt: v.Attempt}
	draw = drawOf(1000, d.world.seed, d.name, v.ID, len(d.calls[v.ID]))
	d.calls[v.ID] = append(d.calls[v.ID], c)
	mode = d.modeOf(v, draw)
	if c.deaf = mode == "deaf" || ctx.Err() != nil; v.Key != "" && !c.deaf {
		at := n.String() + d.orderOf(v)
		if d.inFlight[at]++; d.inFlight[at] > 1 && d.name != "bank" {
			d.world.problems = append(d.world.problems, fmt.Sprintf("%s has key %.9q to %s in flight twice: %.20s", n, v.Key, d.name, v.ID))
		}
	}
	return c, mode, draw / 10
}

// modeOf says how a delivery is answered.
func (d *destination) modeOf(v *notification.Delivery, draw int) string {
	always := d.all
	switch d.mode {
	case "", "ok":
		return "ok"
	case "destination":
		if hostOf(v) != "host1" {
			return "ok"
		}
		return "unavailable"
	case "permanent", "invalid": // some notifications, whenever they come
		draw = drawOf(1000, d.name, v.ID)
	case "unavailable", "throttled", "slow":
		always = true
	}
	if d.name == "addressed" && !d.all && hostOf(v) == "host2" {
		return "ok"
	}
	if always || draw%10 < 3 {
		return d.mode
	}
	return "ok"
}

// answerAs answers in a mode, with a number up to 99 for what is at random.
func answerAs(ctx context.Context, mode string, draw int) error {
	switch mode {
	case "errors":
		return errors.New("later")
	case "permanent":
		return sinks.Permanent(errors.New("never"))
	case "invalid":
		return sinks.Invalid(errors.New("too large"))
	case "unavailable":
		return sinks.Unavailable(errors.New("connection refused"))
	case "throttled":
		return sinks.Throttled(time.Now().Add(time.Duration(draw)*20*time.Millisecond), errors.New("429"))
	case "hanging":
		<-ctx.Done()
		return ctx.Err()
	case "panics":
		panic("index out of range")
	case "slow":
		return takesTime(ctx, time.Duration(draw)*20*time.Millisecond)
	case "deaf":
		time.Sleep(callTimeout + 4*time.Second)
		if draw%2 == 0 {
			return errors.New("too late")
		}
	case "apart":
		return sinks.Apart(errors.New("a store is down"))
	case "unknown":
		return sinks.Unknown(errors.New("an unknown version"))
	}
	return nil
}

// end notes the end of a call. A process that was killed meanwhile does not learn its result.
func (d *destination) end(ctx context.Context, c *call, v *notification.Delivery, err error) error {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	if v.Key != "" && !c.deaf {
		d.inFlight[c.node.String()+d.orderOf(v)]--
	}
	class, _ := sinks.Classify(err)
	c.end, c.ok, c.late = time.Now(), err == nil, ctx.Err() != nil
	c.refused = err != nil && (class == sinks.ClassPermanent || class == sinks.ClassInvalid)
	if c.ok {
		d.world.counts["delivered by "+d.name]++
	}
	d.world.log("%s to %s: %s, attempt %d: %v", c.node, d.name, shortened(v.ID), v.Attempt, cmp.Or(err, errors.New("taken")))
	return err
}

// tap is a destination as one process has it.
type tap struct {
	*destination
	node *node
}

func (s *tap) Deliver(ctx context.Context, v *notification.Delivery) (notification.Receipt, error) {
	return "taken", s.deliver(ctx, s.node, v, new([]*call))
}

// collectorTap takes collections. Their members have one call.
type collectorTap struct{ tap }

func (s *collectorTap) CollectionSize() int { return 0 }

func (s *collectorTap) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	first := *c.Members[0]
	var ids []string
	w := s.world
	last := -1
	w.mu.Lock()
	for _, m := range c.Members {
		ids = append(ids, m.ID)
		r := w.byID[m.ID]
		if groupOf(s.name, m.Envelope) != c.Group || r == nil || r.place <= last {
			w.problems = append(w.problems, fmt.Sprintf("%.20s is in a collection of %s that does not have it, or behind a later one", m.ID, c.Group))
			continue
		}
		last = r.place
	}
	w.counts["collected"]++
	w.mu.Unlock()
	var calls []*call
	err := s.deliver(ctx, s.node, &first, &calls)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, made := range calls { // one, unless the process is dead
		made.together = &together{c.ID, strings.Join(ids, " ")}
		for _, id := range ids[1:] {
			s.calls[id] = append(s.calls[id], made)
		}
	}
	return "taken", err
}

// groupOf returns the group of a delivery to a sink that collects; "" if it has none.
func groupOf(sink string, e *notification.Envelope) string {
	switch {
	case sink == "newest" || e.Key == "":
		return e.Key
	case sink == "digest" || sink == "newest-type":
		return e.Type
	}
	return ""
}

// orderOf returns the key of a delivery, or its group if it is collected by that: deliveries of one are never made at
// once.
func (d *destination) orderOf(v *notification.Delivery) string {
	if group := groupOf(d.name, v.Envelope); group != "" {
		return group
	}
	return v.Key
}

// addressedTap delivers to several hosts.
type addressedTap struct{ tap }

func (s *addressedTap) Destination(v *notification.Delivery) string { return hostOf(v) }

func hostOf(v *notification.Delivery) string {
	if v.Key != "" {
		return fmt.Sprint("host", drawOf(3, v.Key))
	}
	return fmt.Sprint("host", drawOf(3, v.ID))
}

// batchTap takes batches.
type batchTap struct {
	tap
	limits sinks.BatchLimits
}

func (s *batchTap) BatchLimits() sinks.BatchLimits { return s.limits }

func (s *batchTap) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	failed := make(map[string]bool)
	s.busy.Add(1)
	defer s.busy.Add(-1)
	var calls []*call
	returns := false
	defer func() {
		if !returns || ctx.Err() != nil {
			s.unanswered(calls)
		}
	}()
	for i, v := range batch {
		if v.Key != "" && failed[v.Key] {
			results[i].Err = errors.New("not tried: one before it failed")
			continue
		}
		results[i].Err = s.deliver(ctx, s.node, v, &calls)
		failed[v.Key] = results[i].Err != nil
	}
	returns = true
	return results
}

// unanswered marks calls whose results the engine may not learn.
func (d *destination) unanswered(calls []*call) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	for _, c := range calls {
		c.late = true
	}
}

// bankTap is the bank as one process has it.
type bankTap struct {
	*bank
	destination *destination
	node        *node
}

type nodeKey struct{}

func (s *bankTap) OpenLedger(ctx context.Context, lane sinks.LedgerLane) (sinks.Ledger, []byte, error) {
	s.node.waitPaused(ctx)
	switch d := s.destination; {
	case s.node.port.dead.Load():
		return nil, nil, errGone
	case d.present() == "unavailable":
		return nil, nil, sinks.Unavailable(errors.New("no coordinator"))
	}
	l, newest, err := s.bank.OpenLedger(ctx, lane)
	return &ledgerTap{l, s}, newest, err
}

// present returns the mode.
func (d *destination) present() string {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	return d.mode
}

type ledgerTap struct {
	sinks.Ledger
	of *bankTap
}

func (l *ledgerTap) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	return l.Ledger.DeliverBatch(context.WithValue(ctx, nodeKey{}, l.of.node), batch)
}

func (l *ledgerTap) Commit(ctx context.Context, note []byte) error {
	l.of.node.waitPaused(ctx)
	if l.of.node.port.dead.Load() {
		return errGone
	}
	err := l.Ledger.Commit(ctx, note)
	l.of.destination.world.log("%s: the bank commits: %v", l.of.node, cmp.Or(err, errors.New("done")))
	return err
}

// newHistoryBank returns a bank that answers like a destination, and whose commits fail as often as its deliveries.
func newHistoryBank(w *world) *bank {
	b := newBank()
	commits := 0
	b.answer = func(ctx context.Context, v *notification.Delivery) (error, bool) {
		d := w.destinations["bank"]
		err := d.deliver(ctx, ctx.Value(nodeKey{}).(*node), v, new([]*call))
		return err, err != nil && drawOf(2, v.ID, v.Attempt) == 0
	}
	b.commit = func() (before, after error) {
		w.mu.Lock()
		commits++
		draw := drawOf(10, w.seed, commits)
		w.mu.Unlock()
		if w.destinations["bank"].present() != "errors" {
			return nil, nil
		}
		switch draw {
		case 0, 1:
			return errors.New("not committed"), nil
		case 2, 3:
			return nil, errors.New("committed, and the answer is lost")
		}
		return nil, nil
	}
	return b
}

// build makes the sinks of a process.
func (n *node) build() {
	n.sinks = make(map[string]forwarder.Sink)
	for name, d := range n.world.destinations {
		s := forwarder.Sink{Timeout: callTimeout, Retry: forwarder.Retry{MaxAttempts: 1000, Initial: 200 * time.Millisecond, Max: 3 * time.Second}}
		t := tap{d, n}
		switch n.world.seed % 4 {
		case 0:
			s.Parallelism.Threshold = 1 + int(n.world.seed%3)
		case 1:
			s.Rate = forwarder.Rate{Events: 50, Per: time.Second}
		}
		switch name {
		case "ordered":
			s.Sink = &batchTap{t, sinks.BatchLimits{Size: 5, Ordered: true}}
		case "loose":
			s.Sink = &batchTap{t, sinks.BatchLimits{Size: 10, Wait: 50 * time.Millisecond}}
		case "addressed":
			s.Sink = &addressedTap{t}
		case "bank":
			s.Sink = &bankTap{n.world.bank, d, n}
		case "halting":
			s.Sink, s.OnDead, s.Retry.MaxAttempts = &t, forwarder.OnDeadHalt, haltingAttempts
		case "newest":
			s.Sink, s.Collect = &t, forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 300 * time.Millisecond}
		case "newest-type":
			s.Sink, s.Collect = &t, forwarder.Collect{Keep: forwarder.KeepNewest, By: collectedBy, Wait: time.Second, Size: 20}
		case "digest":
			s.Sink, s.Collect = &collectorTap{t}, forwarder.Collect{By: collectedBy, Wait: time.Second, MaxWait: 5 * time.Second, Size: 7}
		case "hook":
			s.Sink, s.Hooks.Delivered = &t, n.effect
		default:
			s.Sink = &t
		}
		n.sinks[name] = s
	}
}

// collectedBy is the rule of groupOf.
const collectedBy = `key == "" ? "" : type`

const haltingAttempts = 3

// effect is a hook that writes what was delivered. It fails as often as the deliveries.
func (n *node) effect(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
	for _, v := range all {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, v.ID); err != nil {
			return err
		}
		if n.world.destinations["hook"].present() == "errors" && drawOf(4, v.ID, time.Now()) == 0 {
			return errors.New("the hook fails")
		}
	}
	return nil
}
