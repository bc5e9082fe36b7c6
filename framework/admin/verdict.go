package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

// Whereabouts is where a delivery is.
type Whereabouts string

// The places in which a delivery can be.
const (
	// Delivered: there is a receipt.
	Delivered Whereabouts = "delivered"
	// Settled: its turn is over, and no receipt shows how it ended.
	Settled Whereabouts = "settled"
	// Waiting: in flight, or in a forwarder's memory, or soon to be read.
	Waiting Whereabouts = "waiting"
	// Unread: the sink has not read it yet.
	Unread Whereabouts = "unread"
	// Retrying, Scheduled, Blocked and Dead: it is parked.
	Retrying  Whereabouts = "retrying"
	Scheduled Whereabouts = "scheduled"
	Blocked   Whereabouts = "blocked"
	Dead      Whereabouts = "dead"
	// Quiet: it is parked until the hours of the sink begin.
	Quiet Whereabouts = "quiet"
	// Settling: it is delivered, but a hook fails.
	Settling Whereabouts = "settling"
	// Collecting: it is a member of a collection that waits, or is in delivery. One that failed is Retrying.
	Collecting Whereabouts = "collecting"
	// Superseded: it was not delivered, since a newer one of its group was.
	Superseded Whereabouts = "superseded"
	// Cancelled: its publisher cancelled it while it was scheduled.
	Cancelled Whereabouts = "cancelled"
	// Unrouted: no route matched its type.
	Unrouted Whereabouts = "no route"
	// PassedBy: routes lead to the sink, but none of their conditions holds.
	PassedBy Whereabouts = "passed by"
)

// Verdict says where the delivery of a notification to one sink is, and why. Fields that do not
// apply have their zero value.
type Verdict struct {
	Sink  string      `json:"sink"`
	Where Whereabouts `json:"where"`
	// Text says it in words.
	Text string `json:"text"`

	Receipt     notification.Receipt `json:"receipt,omitempty"`
	DeliveredAt time.Time            `json:"delivered_at,omitzero"`
	Attempt     int                  `json:"attempt,omitempty"`
	MaxAttempts int                  `json:"max_attempts,omitempty"`
	// Class and LastError are those of the last attempt, and Attempts the last failed ones, the newest first.
	Class     string        `json:"class,omitempty"`
	LastError string        `json:"last_error,omitempty"`
	Attempts  []AttemptView `json:"attempts,omitempty"`
	HookError string        `json:"hook_error,omitempty"`
	DueAt     time.Time     `json:"due_at,omitzero"`
	// Since is since when it has been parked in this state, or cancelled.
	Since time.Time `json:"since,omitzero"`
	// BlockedBy is the id of the delivery that blocks its key.
	BlockedBy string `json:"blocked_by,omitempty"`
	// Group is the group in which it is collected. Members is how many its collection has, if it is
	// not dead.
	Group   string `json:"group,omitempty"`
	Members int    `json:"members,omitempty"`
	// SupersededBy is the id of the newer one.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Forwarder is the one that has leased the lane; "" if none has.
	Forwarder string `json:"forwarder,omitempty"`
	// Before is the number of unsettled rows before it, of any type. BeforeEstimated reports that it is an
	// estimate.
	Before          int64 `json:"before,omitempty"`
	BeforeEstimated bool  `json:"before_estimated,omitempty"`
	// Troubles are what holds up the sink.
	Troubles []Trouble `json:"troubles,omitempty"`
}

// inMemory is roughly how many rows of a lane a forwarder has in memory.
const inMemory = 16_000

// verdict returns the verdict for a sink. A parked delivery takes precedence over a receipt,
// since a replay keeps the old receipt.
func (w *inquiry) verdict(ctx context.Context, sink string, e *notification.Envelope) (Verdict, error) {
	v := Verdict{Sink: sink}
	if w.routing.MaxAttempts != nil && e != nil {
		v.MaxAttempts = w.routing.MaxAttempts(sink, w.typeOf(e))
	}
	for i := range w.trace.Parked {
		if p := &w.trace.Parked[i]; p.Sink == sink && (e == nil || p.Envelope.Offset == e.Offset) {
			return v, w.parked(ctx, &v, p)
		}
	}
	for i := range w.trace.Receipts {
		if r := &w.trace.Receipts[i]; r.Sink == sink && (e == nil || r.Offset == e.Offset) {
			v.Where, v.Receipt, v.DeliveredAt, v.Attempt = Delivered, r.Receipt.Receipt, r.DeliveredAt, r.Attempt
			v.Text = fmt.Sprintf("delivered at %s on attempt %d: %s", timeText(r.DeliveredAt), r.Attempt, receiptText(r.Receipt.Receipt))
			if by, is := r.Receipt.Receipt.SupersededBy(); is {
				v.Where, v.SupersededBy, v.DeliveredAt, v.Since = Superseded, by, time.Time{}, r.DeliveredAt
				v.Text = "superseded by " + by + " at " + timeText(r.DeliveredAt)
			}
			return v, nil
		}
	}
	if c := w.cancellation(e); c != nil {
		v.Where, v.Since, v.Text = Cancelled, c.At, "cancelled at "+timeText(c.At)+" by a publisher"
		return v, nil
	}
	if w.passesBy(ctx, sink, e) {
		v.Where, v.Text = PassedBy, "not for this sink: no condition of its routes holds"
		return v, nil
	}
	for _, l := range w.lanes() {
		if l.Lane.Sink == sink {
			w.inLane(&v, l, e)
			return v, nil
		}
	}
	v.Where, v.Text = Unread, "not read yet: no forwarder has started with this sink"
	return v, nil
}

// cancellation returns the notification's cancellation, or nil.
func (w *inquiry) cancellation(e *notification.Envelope) *store.Cancellation {
	for i := range w.trace.Cancelled {
		if e != nil && w.trace.Cancelled[i].Offset == e.Offset {
			return &w.trace.Cancelled[i]
		}
	}
	return nil
}

// typeOf returns the present name of a notification's type, if the routes know it.
func (w *inquiry) typeOf(e *notification.Envelope) string {
	if w.routing.Routes == nil {
		return e.Type
	}
	return w.routing.Routes.TypeOf(e.Type)
}

// passesBy reports whether routes lead to the sink, but no condition holds.
func (w *inquiry) passesBy(ctx context.Context, sink string, e *notification.Envelope) bool {
	if w.routing.Routes == nil || e == nil {
		return false
	}
	path := w.routing.Routes.To(sink)
	if len(path.Steps(e.Type)) == 0 {
		return false
	}
	admitted, err := path.Admits(ctx, e)
	return err == nil && !admitted
}

// parked describes a parked delivery.
func (w *inquiry) parked(ctx context.Context, v *Verdict, p *store.ParkedDelivery) error {
	v.Attempt, v.HookError, v.DueAt, v.Since, v.Group = p.Attempt, p.HookError, p.DueAt, p.UpdatedAt, p.Group
	v.failed(p)
	if p.HookError != "" {
		defer func() { v.Text += "; a hook failed: " + p.HookError + "; it is called again " + hookTime(p) }()
	}
	switch {
	case p.State == store.StateSettling:
		v.Where, v.Receipt = Settling, p.Receipt
		v.Text = fmt.Sprintf("the sink accepted it on attempt %d: %s", p.Attempt, receiptText(p.Receipt))
		return nil
	case p.State == store.StateCancelled:
		v.Where = Cancelled
		v.Text = "cancelled by a publisher; its parked delivery is removed at " + timeText(p.DueAt)
		if c := w.cancellation(&p.Envelope); c != nil {
			v.Since = c.At
			v.Text = "cancelled at " + timeText(c.At) + " by a publisher; its parked delivery is removed at " + timeText(p.DueAt)
		}
		return nil
	case p.Sink == store.SinkUnrouted:
		v.Where = Unrouted
		v.Text = fmt.Sprintf("no route matched %s when it was read; it has been dead since %s", p.Envelope.Type, timeText(p.UpdatedAt))
		return nil
	case p.State == store.StateDead:
		v.Where = Dead
		v.Text = fmt.Sprintf("dead since %s after %s: %s", timeText(p.UpdatedAt), attemptsText(p.Attempt, v.MaxAttempts), failureText(p))
		return nil
	case p.State == store.StateCollecting:
		if err := w.collected(ctx, v, p); err != nil {
			return err
		}
	case p.State == store.StateBlocked:
		v.Where = Blocked
		if err := w.blocked(ctx, v, p); err != nil {
			return err
		}
	case p.State == store.StateQuiet:
		v.Where, v.Text = Quiet, "outside of the hours of the sink, which begin at "+timeText(p.DueAt)
		if !p.DueAt.After(w.now) {
			v.Text = "waited for the hours of the sink, due since " + timeText(p.DueAt)
		}
		if p.LastError != "" {
			v.Text += fmt.Sprintf(", after %s: %s", attemptsText(p.Attempt, v.MaxAttempts), failureText(p))
		}
	case p.State == store.StateScheduled && p.DueAt.After(w.now):
		v.Where, v.Text = Scheduled, "scheduled for "+timeText(p.DueAt)
	case p.State == store.StateScheduled:
		v.Where, v.Text = Scheduled, "scheduled for "+timeText(p.DueAt)+", which has passed: it waits behind deliveries of its key"
	default:
		v.Where, v.Text = Retrying, w.retrying(v, p)
	}
	w.addTroubles(v)
	return nil
}

func (v *Verdict) failed(p *store.ParkedDelivery) {
	v.Class, v.LastError = p.Failure()
	v.Attempts = attemptViews(p.Attempts)
}

// failureText returns the last error with its class.
func failureText(p *store.ParkedDelivery) string {
	class, cause := p.Failure()
	if class == "" || cause == "" {
		return cmp.Or(cause, class)
	}
	return class + ": " + cause
}

// retrying describes a delivery that waits for its next attempt.
func (w *inquiry) retrying(v *Verdict, p *store.ParkedDelivery) string {
	due := p.DueAt.After(w.now)
	switch {
	case isUnknown(p) && due:
		return fmt.Sprintf("%s; next attempt at %s: %s", w.look.unknown(p), timeText(p.DueAt), failureText(p))
	case isUnknown(p):
		return fmt.Sprintf("%s; due since %s: %s", w.look.unknown(p), timeText(p.DueAt), failureText(p))
	case p.Attempt == 0 && p.LastError != "" && due:
		return fmt.Sprintf("waits until %s, with no attempt spent: %s", timeText(p.DueAt), failureText(p))
	case p.Attempt == 0 && p.LastError != "":
		return fmt.Sprintf("waits with no attempt spent, due since %s: %s", timeText(p.DueAt), failureText(p))
	case p.Attempt == 0:
		return "requeued or replayed, due since " + timeText(p.DueAt)
	case due:
		return fmt.Sprintf("retrying at %s, after %s: %s", timeText(p.DueAt), attemptsText(p.Attempt, v.MaxAttempts), failureText(p))
	}
	return fmt.Sprintf("retrying, due since %s, after %s: %s", timeText(p.DueAt), attemptsText(p.Attempt, v.MaxAttempts), failureText(p))
}

// collected describes a member of a collection.
func (w *inquiry) collected(ctx context.Context, v *Verdict, p *store.ParkedDelivery) error {
	v.Where = Collecting
	if p.Group == "" { // the viewer may not see it
		v.Text = "in a collection"
		return nil
	}
	c, err := w.admin.store.Collection(ctx, p.Sink, store.CollectionRef{Group: p.Group, Number: p.Collection})
	if err != nil {
		return err
	}
	v.Members, v.DueAt = c.Members, c.DueAt
	in := "in collection " + p.Group + " " + othersText(c.Members)
	switch {
	case c.Members == 0:
		v.Text = "in collection " + p.Group + ", which has just been closed or delivered"
		return nil
	case p.Collection == "" && c.Behind != "":
		v.Text = "waits " + in + ", behind an earlier collection of its group, which is not delivered yet"
		return nil
	case p.Collection == "" && c.DueAt.After(w.now):
		v.Text = "waits " + in + ", due at " + timeText(c.DueAt)
		return nil
	case p.Collection == "":
		v.Text = "waits " + in + ", due since " + timeText(c.DueAt)
		return nil
	}
	v.Text = in + ", which is being delivered"
	firsts, err := w.admin.store.FindParked(ctx, store.ParkedFilter{Sink: p.Sink, Group: p.Group, States: []store.State{store.StateCollecting}, Firsts: true}, store.ParkedPlace{}, 10)
	for i := range firsts {
		switch first := &firsts[i]; {
		case first.Collection != p.Collection:
		case first.LastError != "":
			v.Where, v.Attempt = Retrying, first.Attempt
			v.failed(first)
			v.Text = in + ": " + w.retrying(v, first)
		case first.DueAt.After(w.now):
			v.Text = in + ": outside of the hours of the sink, which begin at " + timeText(first.DueAt)
		}
	}
	return err
}

func othersText(members int) string {
	switch members {
	case 1:
		return "with no others"
	case 2:
		return "with 1 other"
	}
	return "with " + separated(int64(members-1)) + " others"
}

// hookTime says when a failed hook is called again.
func hookTime(p *store.ParkedDelivery) string {
	if p.State == store.StateSettling || p.State == store.StateDead {
		return "at " + timeText(p.DueAt)
	}
	return "with the next attempt"
}

// blocked describes what blocks the key.
func (w *inquiry) blocked(ctx context.Context, v *Verdict, p *store.ParkedDelivery) error {
	filter := store.ParkedFilter{Sink: p.Sink, Key: p.Envelope.Key, States: []store.State{store.StateRetrying, store.StateQuiet, store.StateDead}}
	const heads = 100
	found, err := w.admin.store.FindParked(ctx, filter, store.ParkedPlace{}, heads)
	if err != nil {
		return err
	}
	var head *store.ParkedDelivery // the first one that is not dead, otherwise the first dead one
	for i := range found {
		if f := &found[i]; head == nil || head.State == store.StateDead && f.State != store.StateDead {
			head = f
		}
	}
	if head == nil {
		v.Text = fmt.Sprintf("blocked behind an earlier one of its key %s, which is not parked: it is in flight, or was just settled", p.Envelope.Key)
		return nil
	}
	v.BlockedBy = head.Envelope.ID
	why := failureText(head)
	if head.State == store.StateQuiet {
		why = "it waits for the hours of the sink, until " + timeText(head.DueAt)
	}
	v.Text = fmt.Sprintf("blocked by %s of its key %s, which is %s: %s", head.Envelope.ID, p.Envelope.Key, head.State, why)
	return nil
}

func attemptsText(n, of int) string {
	if of > 0 {
		return fmt.Sprintf("attempt %d of %d", n, of)
	}
	return fmt.Sprintf("attempt %d", n)
}

// inLane describes a delivery that is neither parked nor archived.
func (w *inquiry) inLane(v *Verdict, l store.TracedLane, e *notification.Envelope) {
	v.Forwarder, v.Before, v.BeforeEstimated = l.Owner, l.Before, l.Estimated
	switch {
	case l.OtherLog:
		v.Where, v.Text = Unread, "not read yet: the cursor belongs to another log, and this one will be read from the start"
	case l.Settled && v.Sink == store.SinkUnrouted:
		v.Where, v.Text = Settled, "a route matched it when it was read, or it was discarded"
	case l.Settled && w.routing.Routes == nil:
		v.Where, v.Text = Settled, "delivered, or not for this sink"
	case l.Settled && w.admin.store.KeepsReceipts():
		v.Where, v.Text = Settled, "without a receipt: delivered before receipts were kept, discarded, or not for this sink when it was read"
	case l.Settled && w.gathers(v.Sink).Keep == settings.KeepNewest:
		v.Where, v.Text = Settled, "delivered, or superseded by a newer one of its group, or skipped when the sink was new, or discarded by an operator ("+noReceipts+")"
	case l.Settled:
		v.Where, v.Text = Settled, "delivered, or skipped when the sink was new, or discarded by an operator ("+noReceipts+")"
	case w.uncounted && l.Owner == "":
		v.Where, v.Text = Unread, fmt.Sprintf("not read yet: no forwarder works on lane %d", l.Lane.Number)
	case w.uncounted:
		v.Where, v.Text = Waiting, fmt.Sprintf("in flight at %s, or waiting there to be read", l.Owner)
	case l.Owner == "":
		v.Where, v.Text = Unread, fmt.Sprintf("not read yet: no forwarder works on lane %d, and %s before it", l.Lane.Number, rowsText(l))
	case l.Before < inMemory && !l.Estimated:
		v.Where, v.Text = Waiting, fmt.Sprintf("in flight or waiting at %s, %s before it", l.Owner, rowsText(l))
	default:
		v.Where, v.Text = Unread, fmt.Sprintf("not read yet: %s works on %s before it", l.Owner, rowsText(l))
	}
	if !l.Settled {
		if e.DeliverAt.After(w.now) {
			v.DueAt = e.DeliverAt
			v.Text += "; scheduled for " + timeText(e.DeliverAt)
		}
		if c := w.gathers(v.Sink); c.InMemory() {
			v.Text += fmt.Sprintf("; the sink collects: the newest of each key waits %s, and at most %s", c.Wait, c.MaxWait)
		}
		w.addTroubles(v)
	}
}

// noReceipts says why it is not known how a delivery ended, and how to know it the next time.
const noReceipts = "receipts are off: set outbox.receipts: true to know next time"

// gathers returns how a sink collects, as far as that is known.
func (w *inquiry) gathers(sink string) (c settings.Collect) {
	if w.routing.Collect != nil {
		c = w.routing.Collect(sink)
	}
	return c
}

func rowsText(l store.TracedLane) string {
	if l.Before == 1 && !l.Estimated {
		return "1 row"
	}
	return CountText(l.Before, l.Estimated) + " rows"
}

// addTroubles adds what holds up the sink. The text omits destinations: if it is that of the delivery,
// the last error says so.
func (w *inquiry) addTroubles(v *Verdict) {
	v.Troubles = w.look.Holding(v.Sink)
	for _, t := range v.Troubles {
		v.Text += "; " + t.Text
	}
	v.Troubles = append(v.Troubles, w.look.destinations(v.Sink)...)
}

// receiptText returns a receipt as a person reads it. Functions return none.
func receiptText(r notification.Receipt) string { return cmp.Or(string(r), "no receipt") }
