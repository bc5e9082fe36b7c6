package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	// CauseRows is how many failed deliveries are grouped by their cause: the first ones that match.
	CauseRows = 5000
	// causeLook is how many parked deliveries are examined to find them.
	causeLook = 50_000
	// causeBytes is how much of an error distinguishes causes.
	causeBytes = 300
)

// Cause is why deliveries failed: those of one sink and type whose last errors have the same class, and the same text
// but for ids, numbers, times and the like; see CauseOf.
type Cause struct {
	// ID identifies it, for Filter.Cause. It is always the same for the same sink, type, class and error.
	ID    string `json:"cause"`
	Sink  string `json:"sink"`
	Type  string `json:"type"`
	Class string `json:"class,omitempty"`
	// Error is what their last errors have in common.
	Error string `json:"error"`
	// Count is how many there are, and Dead how many of those are dead.
	Count int `json:"count"`
	Dead  int `json:"dead"`
	// Oldest is when the first of them was parked, and Example the id of its notification.
	Oldest  time.Time `json:"oldest"`
	Example string    `json:"example"`
}

// Causes are the causes of failed deliveries, that of the most deliveries first.
type Causes struct {
	Causes []Cause `json:"causes"`
	// Examined is how many deliveries they are made of, and More reports that there may be further ones.
	Examined int  `json:"examined"`
	More     bool `json:"more,omitempty"`
}

// Causes groups failed deliveries by cause: the first 5,000 that match the filter, by sink and in log order, of the
// first 50,000 parked ones. A filter without states selects dead and retrying ones, and the first members of
// collections.
func (a *Admin) Causes(ctx context.Context, f Filter) (Causes, error) {
	found, more, err := a.failed(ctx, f)
	groups := make(map[string]*Cause)
	for i := range found {
		c := causeOf(&found[i])
		g := groups[c.ID]
		if g == nil {
			g = &c
			groups[c.ID] = g
		}
		g.Count++
		if found[i].State == store.StateDead {
			g.Dead++
		}
		if c.Oldest.Before(g.Oldest) {
			g.Oldest, g.Example = c.Oldest, c.Example
		}
	}
	all := Causes{Causes: []Cause{}, Examined: len(found), More: more}
	for _, g := range groups {
		all.Causes = append(all.Causes, *g)
	}
	slices.SortFunc(all.Causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.Oldest.Compare(b.Oldest), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// failed returns the deliveries that are grouped by cause, and whether there may be more.
func (a *Admin) failed(ctx context.Context, f Filter) ([]store.ParkedDelivery, bool, error) {
	f.Cause = ""
	f.States = defaultStates(f, failedStates, failedStates)
	filter, err := f.parse()
	if err != nil {
		return nil, false, err
	}
	filter.Firsts = true
	page, err := a.store.BrowseParked(ctx, store.ParkedQuery{Filter: filter, Look: causeLook, Limit: CauseRows})
	unfailed := func(d store.ParkedDelivery) bool { return d.LastError == "" }
	return slices.DeleteFunc(page.Deliveries, unfailed), page.Next != (store.ParkedPlace{}), err
}

// failedStates are the states of deliveries that have failed and are not delivered since.
var failedStates = []store.State{store.StateDead, store.StateRetrying, store.StateCollecting}

// parse is Filter.parse with the deliveries of the filter's cause: those among the ones that Causes groups. It reports
// whether there may be more of the cause.
func (a *Admin) parse(ctx context.Context, f Filter) (parsed store.ParkedFilter, more bool, err error) {
	if parsed, err = f.parse(); err != nil || f.Cause == "" {
		return parsed, false, err
	}
	found, more, err := a.failed(ctx, f)
	parsed.Places = []store.ParkedPlace{{Ref: store.Ref{Offset: -1}}} // no place at all would select everything
	var changed time.Time
	for i := range found {
		if d := &found[i]; causeOf(d).ID == f.Cause {
			parsed.Places = append(parsed.Places, d.Place())
			if d.UpdatedAt.After(changed) {
				changed = d.UpdatedAt
			}
		}
	}
	if parsed.Until.IsZero() {
		parsed.Until = changed.UTC() // a later attempt may fail for another cause
	}
	return parsed, more, err
}

func causeOf(d *store.ParkedDelivery) Cause {
	class, text := d.Failure()
	c := Cause{Sink: d.Sink, Type: d.Envelope.Type, Class: class, Error: CauseOf(text), Oldest: d.FirstParkedAt.UTC(), Example: d.Envelope.ID}
	digest := sha256.Sum256([]byte(strings.Join([]string{c.Sink, c.Type, c.Class, c.Error}, "\x00")))
	c.ID = hex.EncodeToString(digest[:6])
	return c
}

// CauseOf returns what an error has in common with others of its cause: its first 300 bytes, with … instead of
//
//   - each word with a digit or an @, such as an id, a number, a time or an address. A status such as 422 stays, if it
//     is at the beginning or follows a colon and a space;
//   - the content of each quoted text, except in JSON, where it may be the message;
//
// and with a single space instead of other space.
func CauseOf(text string) string {
	text = strings.Join(strings.Fields(store.CutText(text, 4*causeBytes)), " ")
	text = quoted.ReplaceAllStringFunc(text, func(found string) string {
		before, _, _ := strings.Cut(found, found[len(found)-1:])
		return before + found[len(found)-1:] + "…" + found[len(found)-1:]
	})
	var b strings.Builder
	end := 0
	for _, at := range varying.FindAllStringIndex(text, -1) {
		if word := text[at[0]:at[1]]; status.MatchString(word) && (at[0] == 0 || strings.HasSuffix(text[:at[0]], ": ")) {
			continue
		}
		b.WriteString(text[end:at[0]])
		b.WriteString("…")
		end = at[1]
	}
	b.WriteString(text[end:])
	return store.CutText(b.String(), causeBytes)
}

var (
	// quoted matches a quoted text with what is before it. In JSON, that is one of {[,: or an end of a text and a colon.
	quoted  = regexp.MustCompile(`(?:^|[(=]|[^\s":,{\[]\s|[^\s",{\[]:\s)(?:"[^"]*"|'[^']*'|` + "`[^`]*`)")
	varying = regexp.MustCompile(`[\pL\d_.+-]*(?:\d|[\pL_]@\pL)(?:[\pL\d_@.+-]|:\d)*`)
	status  = regexp.MustCompile(`^[1-5]\d\d$`)
)
