package pages

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// examplesShown is how many rows a preview shows, and examplesTime how long the search for
	// them may take.
	examplesShown = 5
	examplesTime  = time.Second
	// countTime is how long a preview may count.
	countTime = 8 * time.Second
)

// replayPage is the form of a replay, and its preview.
type replayPage struct {
	Sink string
	// Type, Since, Until and Rate are the fields as the user typed them.
	Type, Since, Until, Rate string
	// Mistake is what is wrong with them, or why the replay was not run.
	Mistake string
	// Plan is the preview; nil before the form is sent.
	Plan *admin.ReplayPlan
	// Examples has the first rows; Searching says that the search ran out of time.
	Examples  []notification.Envelope
	Searching bool
	// Typed says that the user must type the number.
	Typed bool
}

// replay shows the form or a preview, or runs a confirmed replay.
func replay(ctx context.Context, r *request) (any, error) {
	if err := r.requireSink(ctx, r.PathValue("name")); err != nil {
		return nil, err
	}
	page := replayPage{
		Sink: r.PathValue("name"), Type: strings.TrimSpace(r.Form.Get("type")),
		Since: strings.TrimSpace(r.Form.Get("since")), Until: strings.TrimSpace(r.Form.Get("until")), Rate: strings.TrimSpace(r.Form.Get("rate")),
	}
	if !r.Form.Has("type") {
		return page, nil
	}
	bounded, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	if err := r.plan(bounded, &page); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			page.Plan, page.Mistake = nil, "Counting takes longer than "+countTime.String()+". Name a type, or run waybill replay, which has no time limit."
			return page, nil
		}
		if what := (problem{}); errors.As(err, &what) || errors.Is(err, admin.ErrFilter) {
			page.Mistake = err.Error()
			return page, nil
		}
		return nil, err
	}
	if r.Method == http.MethodPost {
		if page.Mistake = r.refusal(&page); page.Mistake == "" {
			action, err := r.Acts.Start(ctx, page.Plan)
			return goTo{sinkPath(page.Sink), []any{"action", action.ID}}, err
		}
	}
	return page, r.examples(ctx, &page)
}

// plan counts the rows that the form asks for.
func (r *request) plan(ctx context.Context, page *replayPage) (err error) {
	request := admin.ReplayRequest{Sink: page.Sink, Type: page.Type, Routed: notification.AllTypes}
	if types, known := r.Routing.Filters()[page.Sink]; known {
		request.Routed = types
	}
	if request.Since, err = moment("since", page.Since); err != nil {
		return err
	}
	if request.Until, err = moment("until", page.Until); err != nil {
		return err
	}
	rate, err := number(r.Form, "rate")
	if err != nil {
		return err
	}
	request.Rate = int(min(rate, math.MaxInt32))
	if request.UpTo, err = number(r.PostForm, "up_to"); err != nil {
		return err
	}
	page.Plan, err = r.Admin.Replay(ctx, request)
	if err == nil {
		page.Typed = page.Plan.Total() > typedAbove
	}
	return err
}

// refusal returns why a confirmed replay is not run; "" if it may run.
func (r *request) refusal(page *replayPage) string {
	expected, err := number(r.PostForm, "expected")
	switch total := page.Plan.Total(); {
	case err != nil:
		return err.Error()
	case total == 0:
		return "Nothing matches any more."
	case total > expected:
		return fmt.Sprintf("The replay would now deliver %s notifications, not %s. Check the new preview.", count(total), count(expected))
	case !page.Typed:
		return ""
	}
	if !r.typed(expected) {
		return "Type the number of notifications to confirm."
	}
	return ""
}

// examples finds the first rows of a plan, within examplesTime.
func (r *request) examples(ctx context.Context, page *replayPage) error {
	if page.Plan.Total() == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, examplesTime)
	defer cancel()
	target, err := r.Store.Probe(bounded)
	if err != nil {
		return err
	}
	p := page.Plan
	reader, err := r.Store.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: p.Routed, Since: p.Since, Until: p.Until})
	if err != nil {
		return err
	}
	for len(page.Examples) < examplesShown {
		rows, err := reader.Next(bounded, target, examplesShown)
		switch {
		case bounded.Err() != nil && ctx.Err() == nil:
			page.Searching = true
			return nil
		case err != nil:
			return err
		}
		for _, e := range rows.Envelopes {
			if e.Offset <= p.UpTo && p.Takes(e.Type) && len(page.Examples) < examplesShown {
				page.Examples = append(page.Examples, e)
			}
		}
		if rows.CaughtUp {
			return nil
		}
	}
	return nil
}
