package caller

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/sinks"
)

// Private is how a sink gets notifications with private values.
type Private struct {
	// Ruled reports whether a notification that is not encrypted may have some.
	Ruled func(e *notification.Envelope) bool
	// Views shows notifications.
	Views func(ctx context.Context, published []*notification.Envelope) []privacy.View
}

// views are deliveries as the sink gets them; nil if none has private values that it does not get as they are.
type views []privacy.View

// of returns the view of a delivery; nil if it is not changed.
func (v views) of(i int) *privacy.View {
	if v == nil {
		return nil
	}
	return &v[i]
}

func isPrivate(e *notification.Envelope) bool {
	return e.Metadata.Get(notification.MetadataPrivateKeys) != ""
}

func isRevealed(v *privacy.View) bool { return v != nil && v.Decrypted }

func (c *Caller) viewsOf(ctx context.Context, deliveries []*notification.Delivery) views {
	if c.Private == nil || !slices.ContainsFunc(deliveries, func(d *notification.Delivery) bool { return isPrivate(d.Envelope) || c.Private.Ruled(d.Envelope) }) {
		return nil
	}
	envelopes := make([]*notification.Envelope, len(deliveries))
	for i, d := range deliveries {
		envelopes[i] = d.Envelope
	}
	return c.Private.Views(ctx, envelopes)
}

// ofView classifies why a notification cannot be shown. Without its key it waits for a person.
func ofView(err error) error {
	if errors.Is(err, privacy.ErrErased) || errors.Is(err, privacy.ErrUnreadable) {
		return sinks.Invalid(err)
	}
	return sinks.Apart(err)
}

// clean removes what was decrypted for a call from its results, which are stored and logged, and cuts answers.
func (c *Caller) clean(given []sinks.Result, as views) {
	var revealed []string
	for i := range as {
		revealed = append(revealed, as[i].Revealed...)
	}
	hidden := sync.OnceValue(func() sinks.Hidden { return sinks.Hide(revealed) })
	for i := range given {
		if len(revealed) > 0 && (given[i].Err != nil || given[i].Receipt != "") {
			given[i].Err = hidden().Error(given[i].Err)
			given[i].Receipt = notification.Receipt(hidden().Text(string(given[i].Receipt)))
		}
		given[i].Err = sinks.CutAnswer(given[i].Err, c.AnswerBytes)
	}
}
