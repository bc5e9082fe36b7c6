package caller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Groups says how the deliveries of a sink are collected.
type Groups struct {
	// By is the name of a delivery's group; nil: its key.
	By *route.Text
	// Types are the types that the application publishes; nil: they are not known.
	Types *registry.Registry
	// Newest means that a collection is delivered as its last member.
	Newest bool
	// Collector delivers collections as one; nil: it is not needed.
	Collector sinks.Collector
	Logger    *slog.Logger

	failed pace.Decades // of By
}

// maxGroup is the length of the longest name of a group, in bytes.
const maxGroup = 1024

// Group returns the group of a delivery; "" if it goes alone: it has none, the sink's expressions fail for it, it
// is not for the sink, or it would replace another and fails the check.
func (c *Caller) Group(ctx context.Context, e *notification.Envelope) string {
	if !c.Path.Plain() {
		if admitted, err := c.Path.Admits(ctx, e); err != nil || !admitted {
			return ""
		}
	}
	if c.Groups.Newest && c.Check != nil && !isPrivate(e) && c.Check(ctx, e) != nil {
		return "" // it must not replace another
	}
	group := e.Key
	if c.Groups.By != nil {
		var err error
		if group, err = c.Groups.By.Of(ctx, e, c.Groups.Types); err != nil {
			if n, logs := c.Groups.failed.Count(); logs && ctx.Err() == nil {
				c.Groups.Logger.Warn("collect.by fails: the notification is delivered alone", "type", e.Type, "id", e.ID, "error", err, "count", n)
			}
			return ""
		}
	}
	if len(group) > maxGroup || !utf8.ValidString(group) || strings.ContainsRune(group, 0) {
		return ""
	}
	return group
}

// GroupsOf returns the groups of a page's rows; nil if nothing is collected. It has no group for those that pass by. Once
// ctx is done, the result says nothing.
func (c *Caller) GroupsOf(ctx context.Context, page store.Page, passesBy []bool) []string {
	if c.Groups == nil {
		return nil
	}
	groups := make([]string, len(page.Envelopes))
	for i := range page.Envelopes {
		if passesBy == nil || !passesBy[i] {
			groups[i] = c.Group(ctx, &page.Envelopes[i])
		}
	}
	return groups
}

// errNotShaped marks the error of a member that was never handed to the sink.
var errNotShaped = errors.New("not delivered with its collection")

// IsOfMember reports whether an error of a result of Collect is about that member alone.
func IsOfMember(err error) bool { return errors.Is(err, errNotShaped) || errors.Is(err, ErrPassesBy) }

// Collect makes one delivery of a collection, and returns a result for each member. Those for which
// IsOfMember holds were not a part of it; all others have the same result. to is that of Call, for a collection of which
// the last member is delivered like any other.
func (c *Caller) Collect(ctx context.Context, to Batcher, all sinks.Collection, seen Seen) (given []sinks.Result) {
	given = make([]sinks.Result, len(all.Members))
	members := all.Members
	var places []int
	all.Members = nil
	as := c.viewsOf(ctx, members)
	defer func() { c.clean(given, as) }()
	for i, d := range members {
		e, err := c.shape(ctx, d.Envelope, as.of(i)) // a plain path also for a type that was taken away from the sink meanwhile
		class, _ := sinks.Classify(err)
		switch {
		case ctx.Err() != nil:
			return sinks.Failed(members, ctx.Err())
		case err != nil && class != sinks.ClassInvalid && class != sinks.ClassPermanent:
			return sinks.Failed(members, err) // in their order
		case err != nil:
			if is := (*sinks.Error)(nil); errors.As(err, &is) {
				err = is.Err
			}
			given[i].Err = sinks.Invalid(fmt.Errorf("%w: %w", errNotShaped, err))
		case e == nil:
			given[i].Err = ErrPassesBy
		default:
			changed := *d
			changed.Envelope, changed.Revealed = e, isRevealed(as.of(i))
			all.Members, places = append(all.Members, &changed), append(places, i)
		}
	}
	if len(places) == 0 {
		return given
	}
	result := c.handCollection(ctx, to, &all, seen)
	for _, i := range places {
		given[i] = result
	}
	return given
}

// handCollection calls the sink.
func (c *Caller) handCollection(ctx context.Context, to Batcher, all *sinks.Collection, seen Seen) (result sinks.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = sinks.Result{Err: fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())}
		}
	}()
	if err := c.Open(ctx); err != nil {
		return sinks.Result{Err: sinks.Unavailable(err)}
	}
	if c.Groups == nil || c.Groups.Collector == nil || c.Groups.Newest {
		return c.hand(ctx, to, all.Members[len(all.Members)-1:], nil, seen)[0]
	}
	if seen != nil {
		all.Members = seen(all.Members)
	}
	result.Receipt, result.Err = c.Groups.Collector.DeliverCollection(ctx, all)
	return result
}
