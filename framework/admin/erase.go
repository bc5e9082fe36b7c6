package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
)

const eraseAction = "erase"

// ErasePlan is an erasure that was counted, and not run yet.
type ErasePlan struct {
	// Keys is how many keys the person has that are not erased.
	Keys int
	// Counts are what the tables have of notifications with values that these keys, or erased ones of the person,
	// encrypt.
	Counts []store.PersonalCount
	// Plain is how many rows of the log and parked deliveries have values that are not encrypted, by the rules.
	Plain int64
	// Source is the name of the log if that is outside of the database. What it has of types with rules stays; "" otherwise.
	Source string

	admin   *Admin
	keys    *privacy.Keyring
	subject string
}

var _ Planned = (*ErasePlan)(nil)

// Erase plans to erase the private values of a person: the keys that encrypt them are destroyed, so that the log, parked
// deliveries, and all copies of them are unreadable. What sinks have returned, which may echo the values, is removed,
// and rows of types with rules lose the values. Notifications stay, and are delivered without them, as their sinks
// say. Run records the action with the number of keys, and not whom it was about.
//
// Forwarders may decrypt with what they remember for as long as privacy.Config.Cache says. What was delivered
// decrypted is outside of the outbox. It fails with privacy.ErrMaster without the master key, since the person's keys
// are found with it; see EraseKeys.
func (a *Admin) Erase(ctx context.Context, keys *privacy.Keyring, subject string) (*ErasePlan, error) {
	if subject == "" {
		return nil, fmt.Errorf("%w: the subject is empty: name the person as the application does", ErrFilter)
	}
	p := &ErasePlan{admin: a, keys: keys, subject: subject}
	if source := store.SourceOf(a.store); source != nil {
		p.Source = source.Name()
	}
	alive, all, err := p.ids(ctx)
	if err != nil {
		return nil, err
	}
	p.Keys = len(alive)
	if p.Counts, err = a.FindPersonal(ctx, store.PersonalFilter{PrivateKeys: all}); err != nil {
		return nil, err
	}
	return p, p.rewrite(ctx, "", func() bool { p.Plain++; return false }, func(int) {})
}

// ids returns the ids of the person's keys.
func (p *ErasePlan) ids(ctx context.Context) (alive, all []string, err error) {
	subjects, err := p.keys.Subject(ctx, p.subject)
	if err != nil {
		return nil, nil, err
	}
	keys, err := p.admin.store.PrivateKeysOf(ctx, subjects)
	for _, k := range keys {
		if all = append(all, k.ID); k.ErasedAt.IsZero() {
			alive = append(alive, k.ID)
		}
	}
	return alive, all, err
}

// Total returns the number of keys and rows in the plan.
func (p *ErasePlan) Total() int64 {
	total := int64(p.Keys) + p.Plain
	for _, c := range p.Counts {
		total += c.Rows
	}
	return total
}

// Expect returns ErrMore if the plan includes more than n keys and rows.
func (p *ErasePlan) Expect(n int64) error { return expect(p.Total(), n) }

// Run destroys the keys at once, also those created since the plan, and then removes texts and rewrites rows in batches,
// each one transaction. After an error it can be planned and run again: what is destroyed stays so.
func (p *ErasePlan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	a := p.admin
	alive, all, err := p.ids(ctx)
	if err != nil {
		return store.Action{}, err
	}
	action, err := a.begin(ctx, eraseAction, map[string]int{"keys": len(alive)}, 0) // encrypted rows of the log stay as they are
	if err != nil {
		return action, err
	}
	progress.report(action)
	done := func(changed int) {
		action.Count += int64(changed)
		progress.report(action)
	}
	erased, err := a.store.ErasePrivateKeys(ctx, action.ID, alive)
	if err != nil {
		return a.stopped(ctx, action, err)
	}
	done(erased)
	if err := changePersonal(ctx, a.store.CutPersonal, action.ID, store.PersonalFilter{PrivateKeys: all}, done); err != nil {
		return a.stopped(ctx, action, err)
	}
	if err := p.rewrite(ctx, action.ID, func() bool { return true }, done); err != nil {
		return a.stopped(ctx, action, err)
	}
	return action, a.end(ctx, &action)
}

// rewrite removes the values of types with rules from the rows of the log and the parked deliveries for which may
// returns true.
func (p *ErasePlan) rewrite(ctx context.Context, action string, may func() bool, done func(changed int)) error {
	b := store.RewriteBatch{Action: action, Types: p.keys.Ruled(), Change: func(e *notification.Envelope) ([]byte, bool) {
		payload, has := p.keys.Without(e, p.subject)
		return payload, has && may()
	}}
	for len(b.Types) > 0 {
		result, err := p.admin.store.RewritePayloads(ctx, b)
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
	return nil
}

// EraseKeys erases keys by their ids, as ErasedKeys has returned them before a backup was restored, and returns how many
// were not erased any more. It needs no master key.
func (a *Admin) EraseKeys(ctx context.Context, ids []string) (erased int, err error) {
	action, err := a.begin(ctx, eraseAction, map[string]int{"keys": len(ids)}, int64(len(ids)))
	if err != nil {
		return 0, err
	}
	for few := range slices.Chunk(ids, batchRows) {
		n, err := a.store.ErasePrivateKeys(ctx, action.ID, few)
		if erased += n; err != nil {
			return erased, err
		}
	}
	return erased, a.end(ctx, &action)
}

// ErasedKeys returns the ids of the erased keys. They say nothing about persons, and are kept outside of the database, so
// that they can be erased again after a backup was restored.
func (a *Admin) ErasedKeys(ctx context.Context) ([]string, error) {
	return a.store.ErasedPrivateKeys(ctx)
}
