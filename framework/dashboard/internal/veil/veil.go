// Package veil hides in what is read of an outbox what receivers have answered: such texts may
// repeat payloads. Viewers see only the class of an error; operators see its text with the masks of
// payloads applied.
package veil

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Store is an outbox as a user may see it. It is safe for concurrent use.
type Store struct {
	admin.Store
	text    func(typ, text string, payload []byte) string
	receipt func(typ string, receipt notification.Receipt, payload []byte) notification.Receipt
	routing admin.Routing
	masks   masks.Masks
	viewer  bool
}

var _ store.Sourced = (*Store)(nil)

// Of returns the outbox of a target as a user may see it.
func Of(t *target.Target, m masks.Masks, user access.User) *Store {
	v := &Store{Store: t.Store, routing: t.Routing, masks: m, viewer: !user.May(access.Operator)}
	if v.viewer {
		v.text = func(_, text string, _ []byte) string { return Class(text) }
		v.receipt = func(_ string, r notification.Receipt, _ []byte) notification.Receipt { return proof(r) }
		return v
	}
	v.text = func(typ, text string, payload []byte) string {
		if typ == "" {
			return m.Text(nil, text, nil)
		}
		return m.Text(t.Routing.Names(typ), text, payload)
	}
	v.receipt = func(typ string, r notification.Receipt, payload []byte) notification.Receipt {
		return notification.Receipt(v.text(typ, string(r), payload))
	}
	return v
}

// answered matches the status of an answer, which the receiver's own text follows.
var answered = regexp.MustCompile(`^(?:[A-Z]+ )?https?://\S+?: ([1-5]\d\d)\b`)

// brief returns a class and the status of the answer with which a cause begins, as far as there are any.
func brief(class, between, cause string) string {
	found := answered.FindStringSubmatch(cause)
	switch {
	case found == nil:
		return class
	case class == "":
		return "http " + found[1]
	}
	return class + between + "http " + found[1]
}

// Class returns the class of an error and the status of the answer, such as "permanent, http 422", as far as the text has
// them; "" if there is no error.
func Class(text string) string {
	class, cause := (&store.Parked{LastError: text}).Failure()
	if shown := brief(class, ", ", cause); shown != "" || text == "" {
		return shown
	}
	return "an error"
}

// proof returns the part of a receipt that is not the receiver's own text.
func proof(r notification.Receipt) notification.Receipt {
	if found := r.Proof(); found != "" || r == "" {
		return found
	}
	return "a receipt"
}

// Endpoint returns an endpoint as the user may see it: its path may be a secret, and its trouble repeat payloads.
func (v *Store) Endpoint(e endpoint.View) endpoint.View {
	if v.viewer {
		if u, err := url.Parse(e.URL); err == nil && e.URL != "" {
			e.URL = u.Scheme + "://" + u.Host + "/" + endpoint.Masked
		}
	}
	e.Trouble = v.text("", e.Trouble, nil)
	return e
}

// WholeEndpoint is Endpoint for one with its attempts.
func (v *Store) WholeEndpoint(e endpoint.Whole) endpoint.Whole {
	e.View = v.Endpoint(e.View)
	for i := range e.Attempts {
		e.Attempts[i].Error = v.text(e.Attempts[i].Type, e.Attempts[i].Error, nil)
	}
	return e
}

// Findings returns findings of the doctor as an operator may see them: some quote the errors of hooks and of sinks.
func (v *Store) Findings(found []doctor.Finding) []doctor.Finding {
	found = slices.Clone(found)
	for i := range found {
		found[i].Text = v.text("", found[i].Text, nil)
	}
	return found
}

// Source returns the source of the outbox; nil if the database has the log.
func (v *Store) Source() store.Source { return store.SourceOf(v.Store) }

// Sample looks at the outbox once.
func (v *Store) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	sample, err := v.Store.Sample(ctx, q)
	return v.sample(sample), err
}

// Membership returns the running forwarders, with what they say about their sinks.
func (v *Store) Membership(ctx context.Context) (store.Membership, error) {
	m, err := v.Store.Membership(ctx)
	return v.membership(m), err
}

// hidesGroup reports whether the groups of a sink are made of what is masked, such as metadata.recipient; of a
// sink whose groups are unknown, whether anything is.
func (v *Store) hidesGroup(sink string) bool {
	if v.routing.Collect == nil {
		return len(v.masks) > 0
	}
	names := strings.FieldsFunc(v.routing.Collect(sink).By, func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.ContainsFunc(names, v.masks.HideMetadata)
}

// mayFilter refuses a filter by what is masked, metadata or a group: what it selects would show it.
func (v *Store) mayFilter(f store.ParkedFilter) error {
	sinks := []string{f.Sink}
	if f.Sink == "" {
		sinks = slices.Collect(maps.Keys(v.routing.Filters()))
	}
	if f.Group != "" && slices.ContainsFunc(sinks, v.hidesGroup) {
		return fmt.Errorf("%w: observe.masks hides the groups of a sink: name another sink, or use waybill parked on the machine instead", admin.ErrFilter)
	}
	for name := range f.Metadata {
		if v.masks.HideMetadata(name) {
			return fmt.Errorf("%w: observe.masks hides the metadata %s: use waybill parked on the machine instead", admin.ErrFilter, name)
		}
	}
	return nil
}

// CountReroute counts what a reroute would move.
func (v *Store) CountReroute(ctx context.Context, q store.RerouteQuery) ([]store.RerouteCount, time.Time, error) {
	if err := v.mayFilter(q.Filter); err != nil {
		return nil, time.Time{}, err
	}
	return v.Store.CountReroute(ctx, q)
}

// CountParked counts parked deliveries.
func (v *Store) CountParked(ctx context.Context, f store.ParkedFilter) ([]store.ParkedCount, time.Time, error) {
	if err := v.mayFilter(f); err != nil {
		return nil, time.Time{}, err
	}
	counts, changed, err := v.Store.CountParked(ctx, f)
	return v.counts(counts), changed, err
}

// FindParked returns parked deliveries.
func (v *Store) FindParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	if err := v.mayFilter(f); err != nil {
		return nil, err
	}
	found, err := v.Store.FindParked(ctx, f, after, limit)
	return v.parked(found), err
}

// BrowseParked returns parked deliveries.
func (v *Store) BrowseParked(ctx context.Context, q store.ParkedQuery) (store.ParkedPage, error) {
	if err := v.mayFilter(q.Filter); err != nil {
		return store.ParkedPage{}, err
	}
	page, err := v.Store.BrowseParked(ctx, q)
	page.Deliveries = v.parked(page.Deliveries)
	return page, err
}

// ParkedFigures counts the parked deliveries of each sink.
func (v *Store) ParkedFigures(ctx context.Context) ([]store.ParkedFigures, error) {
	all, err := v.Store.ParkedFigures(ctx)
	for i := range all {
		all[i] = v.figures(all[i])
	}
	return all, err
}

// Trace returns what the outbox has of a notification.
func (v *Store) Trace(ctx context.Context, q store.TraceQuery) (store.Trace, error) {
	t, err := v.Store.Trace(ctx, q)
	v.trace(&t)
	return t, err
}

// TraceRows returns what the outbox has of rows of the log.
func (v *Store) TraceRows(ctx context.Context, rows []notification.Envelope) ([]store.Trace, error) {
	traces, err := v.Store.TraceRows(ctx, rows)
	for i := range traces {
		v.trace(&traces[i])
	}
	return traces, err
}

// Related returns what the outbox has of the notifications of a correlation.
func (v *Store) Related(ctx context.Context, q store.RelatedQuery) (store.Related, error) {
	related, err := v.Store.Related(ctx, q)
	for i := range related.Traces {
		v.trace(&related.Traces[i])
	}
	return related, err
}

// Snapshot returns a snapshot of the history. It does not change the given one, which others share.
func (v *Store) Snapshot(s history.Snapshot) history.Snapshot {
	s.Membership = v.membership(s.Membership)
	s.Sinks = maps.Clone(s.Sinks)
	for name, running := range s.Sinks {
		running.Cause = v.text("", running.Cause, nil)
		s.Sinks[name] = running
	}
	s.Sample = v.sample(s.Sample)
	if s.Held != nil {
		s.Held = &v.Findings([]doctor.Finding{*s.Held})[0] // it quotes a statement
	}
	if v.viewer {
		s.Held = nil // a finding of the doctor; the sample says for how long
		if s.Err != nil {
			s.Err = errors.New("the log says why")
		}
	}
	return s
}

func (v *Store) sample(s store.Sample) store.Sample {
	s.Sinks = slices.Clone(s.Sinks)
	for i := range s.Sinks {
		s.Sinks[i].Parked = v.figures(s.Sinks[i].Parked)
	}
	return s
}

func (v *Store) counts(counts []store.ParkedCount) []store.ParkedCount {
	for i := range counts {
		counts[i].HookError = v.text("", counts[i].HookError, nil)
	}
	return counts
}

func (v *Store) figures(f store.ParkedFigures) store.ParkedFigures {
	f.HookError = v.text("", f.HookError, nil)
	f.States = slices.Clone(f.States)
	for i := range f.States {
		s := &f.States[i]
		if s.HookError = v.text("", s.HookError, nil); v.viewer || v.masks.Any(v.routing.Names(s.LastType)) {
			s.LastError = Class(s.LastError) // it may repeat what the payload, which is not here, hides
		}
	}
	return f
}

func (v *Store) parked(found []store.ParkedDelivery) []store.ParkedDelivery {
	for i := range found {
		d := &found[i]
		typ, payload := d.Envelope.Type, d.Envelope.Payload
		d.LastError, d.HookError = v.lastError(d), v.text(typ, d.HookError, payload)
		d.Attempts = v.attempts(d)
		d.Receipt = v.receipt(typ, d.Receipt, payload)
		if d.Group != "" && v.hidesGroup(d.Sink) {
			d.Group = ""
		}
	}
	return found
}

// lastError returns the last error of a parked delivery, which begins with its class if the cause is hidden.
func (v *Store) lastError(d *store.ParkedDelivery) string {
	if !v.classOnly(d) {
		return v.text(d.Envelope.Type, d.LastError, d.Envelope.Payload)
	}
	class, cause := d.Failure()
	switch class {
	case "":
		return Class(cause)
	case "timeout", "panic":
		class = "transient"
	}
	return brief(class, ": ", cause)
}

// classOnly reports whether only the class of a delivery's errors may be shown: to viewers, and if its type has masks
// and its payload is not at hand, whose masked values they may repeat.
func (v *Store) classOnly(d *store.ParkedDelivery) bool {
	return v.viewer || len(d.Envelope.Payload) == 0 && v.masks.Any(v.routing.Names(d.Envelope.Type))
}

// attempts returns a copy of the attempts of a parked delivery.
func (v *Store) attempts(d *store.ParkedDelivery) []store.PastAttempt {
	attempts := slices.Clone(d.Attempts)
	for i := range attempts {
		a := &attempts[i]
		if a.Error = v.text(d.Envelope.Type, a.Error, d.Envelope.Payload); v.classOnly(d) {
			a.Error = brief("", "", d.Attempts[i].Error)
		}
	}
	return attempts
}

func (v *Store) trace(t *store.Trace) {
	v.parked(t.Parked)
	typ, payload := "", []byte(nil)
	if e := t.Envelope(); e != nil {
		typ, payload = e.Type, e.Payload
	}
	for i := range t.Receipts {
		t.Receipts[i].Receipt.Receipt = v.receipt(typ, t.Receipts[i].Receipt.Receipt, payload)
	}
}

func (v *Store) membership(m store.Membership) store.Membership {
	m.Members = slices.Clone(m.Members)
	for i := range m.Members {
		member := &m.Members[i]
		member.Sinks = slices.Clone(member.Sinks)
		member.Running.Sinks = slices.Clone(member.Running.Sinks)
		for j := range member.Running.Sinks {
			s := &member.Running.Sinks[j]
			s.Cause = v.text("", s.Cause, nil)
		}
		member.States = maps.Clone(member.States)
		for name, s := range member.States {
			s.Cause = v.text("", s.Cause, nil)
			s.Destinations = slices.Clone(s.Destinations)
			for j := range s.Destinations {
				s.Destinations[j].Cause = v.text("", s.Destinations[j].Cause, nil)
			}
			member.States[name] = s
		}
	}
	return m
}
