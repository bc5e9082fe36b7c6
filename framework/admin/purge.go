package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// PurgeRequest selects all notifications of one person, by their ordering keys and ids: at least one of them, and
// at most 100 together.
type PurgeRequest struct {
	Keys []string `json:"keys,omitempty"`
	IDs  []string `json:"ids,omitempty"`
}

const purgeAction = "purge"

// maxPurged is how many keys and ids a purge takes: each is compared with each row of the log.
const maxPurged = 100

// Validate returns ErrFilter with what is wrong.
func (r PurgeRequest) Validate() error {
	switch n := len(r.Keys) + len(r.IDs); {
	case n == 0:
		return fmt.Errorf("%w: key or id is missing: name an ordering key or the id of a notification", ErrFilter)
	case n > maxPurged:
		return fmt.Errorf("%w: keys and ids are %d: name at most %d at once", ErrFilter, n, maxPurged)
	}
	for name, texts := range map[string][]string{"key": r.Keys, "id": r.IDs} {
		if slices.Contains(texts, "") {
			return fmt.Errorf("%w: %s is empty: leave it out, or name one", ErrFilter, name)
		}
		for _, text := range texts {
			if len(text) > notification.MaxKeyLength || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return fmt.Errorf("%w: %s %q cannot be one: it has more than %d bytes, a NUL, or is not UTF-8", ErrFilter, name, store.CutText(text, 40), notification.MaxKeyLength)
			}
		}
	}
	return nil
}

// PurgePlan is a purge that was counted, and not run yet.
type PurgePlan struct {
	// Counts are what the tables have of the notifications.
	Counts []store.PersonalCount
	// Source is the name of the log if that is outside of the database: its records stay. "" otherwise.
	Source string

	admin   *Admin
	request PurgeRequest
}

var _ Planned = (*PurgePlan)(nil)

// Purge plans to delete what the outbox has of one person's notifications, delivered or not, in all tables; see
// [store.Personal]. Forwarders may go on. Run records the action with the number of keys and ids, and without
// them. It also deletes what has come since the plan.
func (a *Admin) Purge(ctx context.Context, r PurgeRequest) (*PurgePlan, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	p := &PurgePlan{admin: a, request: r}
	if source := store.SourceOf(a.store); source != nil {
		p.Source = source.Name()
	}
	var err error
	p.Counts, err = a.FindPersonal(ctx, p.filter())
	return p, err
}

func (p *PurgePlan) filter() store.PersonalFilter {
	return store.PersonalFilter{IDs: p.request.IDs, Keys: p.request.Keys}
}

// Total returns the number of rows in the plan, in all tables.
func (p *PurgePlan) Total() (total int64) {
	for _, c := range p.Counts {
		total += c.Rows
	}
	return total
}

// Undelivered returns how many rows of the log some sink may not have passed yet. Forwarders may have these in hand:
// see [store.Personal].
func (p *PurgePlan) Undelivered() (rows int64) {
	for _, c := range p.Counts {
		rows += c.Undelivered
	}
	return rows
}

// Expect returns ErrMore if the plan includes more than n rows.
func (p *PurgePlan) Expect(n int64) error { return expect(p.Total(), n) }

// Run deletes, in batches, each one transaction, and records the action; see Plan.Run.
func (p *PurgePlan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	about := map[string]int{"keys": len(p.request.Keys), "ids": len(p.request.IDs)}
	action, err := p.admin.begin(ctx, purgeAction, about, p.Total())
	if err != nil {
		return action, err
	}
	progress.report(action)
	err = changePersonal(ctx, p.admin.store.PurgePersonal, action.ID, p.filter(), func(changed int) {
		action.Count += int64(changed)
		progress.report(action)
	})
	if err != nil {
		return p.admin.stopped(ctx, action, err)
	}
	return action, p.admin.end(ctx, &action)
}

// FindPersonal counts by table what the outbox has of one person's notifications; see [store.Personal].
func (a *Admin) FindPersonal(ctx context.Context, f store.PersonalFilter) ([]store.PersonalCount, error) {
	counts, err := a.store.CountPersonal(ctx, f)
	return append([]store.PersonalCount{}, counts...), err // [] in JSON, not null
}

// changePersonal does all batches of a purge or a cut.
func changePersonal(ctx context.Context, do func(context.Context, store.PersonalBatch) (store.PersonalResult, error),
	action string, f store.PersonalFilter, done func(changed int)) error {
	for b := (store.PersonalBatch{Action: action, Filter: f}); ; {
		result, err := do(ctx, b)
		if err != nil {
			return err
		}
		if done(result.Changed); result.Done {
			return nil
		}
		b.After = result.Next
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
