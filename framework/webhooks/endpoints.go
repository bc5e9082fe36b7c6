package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// Endpoints manages the endpoints of an outbox. Each method is one transaction; those of [Endpoints.In]
// belong to the caller's. A method with a tenant neither sees nor changes endpoints of others. It is safe for
// concurrent use.
type Endpoints struct {
	store   Store
	config  Config
	in      sinks.Instance
	vault   *vault
	acting  *admin.Admin // for the table of actions
	records bool         // each change is an action, since an operator makes it
	tx      outbox.Tx    // if bound
	bound   bool         // otherwise each method is a transaction
}

// Store is what package webhooks needs from an outbox.
type Store interface {
	forwarder.Store
	store.Endpoints
	admin.Store
	outbox.Log
}

// NewEndpoints returns what manages the endpoints of an outbox, with the settings of its sink. in has the name
// of the sink in the forwarder, the application's types, without which patterns are checked only for their
// form, and what makes connections for [Endpoints.SendTest]. It connects to nothing. Its error joins all
// mistakes of c.
func NewEndpoints(s Store, in sinks.Instance, c Config) (*Endpoints, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.SetDefaults()
	v, err := newVault(c.EncryptionKeys)
	if err != nil {
		return nil, err
	}
	return &Endpoints{store: s, config: c, in: in, vault: v, acting: admin.New(s, in.Name)}, nil
}

// In returns the same with the caller's transaction: what its methods write commits with tx or not at
// all. tx is as in Publish of package outbox. One that can only execute statements, such as that of pgx,
// does not read: then reading methods see only what is committed. After an error of the database roll tx
// back; it is still usable after all errors of this package.
func (e *Endpoints) In(tx outbox.Tx) *Endpoints {
	bound := *e
	bound.tx, bound.bound = tx, true
	return &bound
}

// By returns the same on behalf of someone, whose name the table of actions gets; the default is that of the
// sink.
func (e *Endpoints) By(who string) *Endpoints {
	bound := *e
	bound.acting = admin.New(e.store, who)
	return &bound
}

// As returns the same for an operator, who acts as a: each change is recorded as an action, before it is made. What
// customers do to their own endpoints is not recorded.
func (e *Endpoints) As(a *admin.Admin) *Endpoints {
	bound := *e
	bound.acting, bound.records = a, true
	return &bound
}

// record makes a change of an endpoint, and records it if an operator makes it.
func (e *Endpoints) record(ctx context.Context, name, tenant, id string, change func() error) error {
	if !e.records {
		return change()
	}
	return e.acting.Record(ctx, name+" endpoint", map[string]string{"tenant": tenant, "endpoint": id}, change)
}

// execer returns where to write; nil if there is no transaction.
func (e *Endpoints) execer() (store.Execer, error) {
	if !e.bound {
		return nil, nil
	}
	return outbox.CheckTx(e.tx)
}

// Types returns the application's types; nil if they are not known.
func (e *Endpoints) Types() *registry.Registry { return e.in.Types }

// Sink returns the name of the sink.
func (e *Endpoints) Sink() string { return e.in.Name }

// Config returns the settings, with defaults.
func (e *Endpoints) Config() Config { return e.config }

// Create adds an endpoint, and returns it with its secret, which is not shown again: whsec_… or, if it is
// asymmetric, the public key whpk_…. It fails with [ErrInvalid], [ErrTooMany] or an error of the database.
// If the tenant has the endpoint of n.Key already, it returns that one as it is now; or it fails with [ErrKeyUsed] if
// that one was made with other settings and not changed since. Transactions that overlap do not see each other, and may
// together exceed the tenant's limit.
func (e *Endpoints) Create(ctx context.Context, n NewEndpoint) (created Endpoint, secret string, err error) {
	if len(n.Types) == 0 {
		n.Types = []string{"*"}
	}
	if err := e.Check(&n); err != nil {
		return Endpoint{}, "", err
	}
	tx, err := e.execer()
	if err != nil {
		return Endpoint{}, "", err
	}
	id := notification.NewID()
	if n.Key != "" {
		id = keyedID(n.Tenant, n.Key)
		if found, secret, err := e.made(ctx, id, &n); !errors.Is(err, ErrUnknown) {
			return found, secret, err
		}
	}
	signs := n.Secret
	if signs == "" {
		if signs, err = newSecret(n.Asymmetric); err != nil {
			return Endpoint{}, "", err
		}
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	made := Endpoint{Settings: n.Settings, ID: id, Tenant: n.Tenant, CreatedAt: now, ChangedAt: now, Version: 1}
	made.private = private{Secrets: []signing{{Secret: signs}}, Headers: n.Headers}
	row, err := e.row(&made)
	if err != nil {
		return Endpoint{}, "", err
	}
	most := e.config.EndpointsPerTenant
	if e.records { // what cannot be done is no action
		var there []Endpoint
		if there, err = e.list(ctx, store.EndpointQuery{Tenants: []string{n.Tenant}, Limit: most}); err == nil && len(there) == most {
			err = ErrTooMany
		}
	}
	if err == nil {
		err = e.record(ctx, "add", n.Tenant, id, func() error { return e.store.AddEndpoint(ctx, tx, row, most) })
	}
	if errors.Is(err, ErrTooMany) {
		err = fmt.Errorf("%w: tenant %q has the %d that endpoints_per_tenant allows: delete one", ErrTooMany, n.Tenant, most)
		if most < MaxEndpoints {
			err = fmt.Errorf("%w, or raise that to at most %d", err, MaxEndpoints)
		}
	}
	if err != nil && n.Key != "" { // another Create with the key may have been first
		if found, secret, again := e.made(ctx, id, &n); again == nil {
			return found, secret, nil
		}
	}
	if err != nil {
		return Endpoint{}, "", err
	}
	return made, shown(signs), nil
}

// made returns an endpoint that an earlier Create has made of n. It fails with ErrUnknown if there is none.
func (e *Endpoints) made(ctx context.Context, id string, n *NewEndpoint) (Endpoint, string, error) {
	found, err := e.Get(ctx, n.Tenant, id)
	if err == nil {
		err = found.broken
	}
	if err != nil {
		return Endpoint{}, "", err
	}
	now := found.private.Secrets[0].Secret
	same := found.URL == n.URL && found.Description == n.Description && found.When == n.When && found.Rate == n.Rate &&
		slices.Equal(found.Types, n.Types) && maps.Equal(found.Headers, n.Headers) && (n.Secret == "" || n.Secret == now)
	if !same && found.Version == 1 {
		return Endpoint{}, "", ErrKeyUsed
	}
	return found, shown(now), nil
}

// Check returns the mistakes of a new endpoint, as [ErrInvalid], for which Create would refuse it; nil if there are
// none. It asks no database.
func (e *Endpoints) Check(n *NewEndpoint) error {
	var mistakes []error
	switch err := checkText(n.Tenant, maxTenant); {
	case n.Tenant == "":
		mistakes = append(mistakes, &FieldError{"tenant", errors.New("is missing; name whose endpoint it is")})
	case err != nil:
		mistakes = append(mistakes, &FieldError{"tenant", err})
	}
	if len(n.Key) > maxKey {
		mistakes = append(mistakes, &FieldError{"key", fmt.Errorf("is %d bytes long, more than %d", len(n.Key), maxKey)})
	}
	if n.Secret != "" {
		if err := httpsink.CheckSecret(n.Secret); err != nil {
			mistakes = append(mistakes, &FieldError{"secret", err})
		}
		if n.Asymmetric {
			mistakes = append(mistakes, &FieldError{"asymmetric", errors.New("makes its own key; leave out the secret")})
		}
	}
	if err := n.check(&e.config, e.in.Types); err != nil {
		mistakes = append(mistakes, mistakesOf(err)...)
	}
	return invalid(mistakes)
}

// mistakesOf returns the mistakes in an error, those of fields.
func mistakesOf(err error) (mistakes []error) {
	for _, m := range FieldErrors(err) {
		mistakes = append(mistakes, m)
	}
	return mistakes
}

// FieldErrors returns the mistakes in an error of this package, by field.
func FieldErrors(err error) (mistakes []*FieldError) {
	if several, is := err.(interface{ Unwrap() []error }); is {
		for _, inner := range several.Unwrap() {
			mistakes = append(mistakes, FieldErrors(inner)...)
		}
		return mistakes
	}
	if one, is := err.(*FieldError); is { //nolint:errorlint // each layer is looked at
		return []*FieldError{one}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return FieldErrors(inner)
	}
	return nil
}

// Get returns an endpoint. It fails with ErrUnknown.
func (e *Endpoints) Get(ctx context.Context, tenant, id string) (Endpoint, error) {
	found, err := e.list(ctx, store.EndpointQuery{IDs: []string{id}})
	switch {
	case err != nil:
		return Endpoint{}, err
	case len(found) == 0 || found[0].Tenant != tenant:
		return Endpoint{}, fmt.Errorf("%w %q of tenant %q", ErrUnknown, id, tenant)
	}
	return found[0], nil
}

// Find returns an endpoint of any tenant, for operators. It fails with ErrUnknown.
func (e *Endpoints) Find(ctx context.Context, id string) (Endpoint, error) {
	found, err := e.list(ctx, store.EndpointQuery{IDs: []string{id}})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w %q", ErrUnknown, id)
	}
	if err != nil {
		return Endpoint{}, err
	}
	return found[0], nil
}

// Query selects endpoints to list.
type Query struct {
	// Tenant is whose endpoints; "" are those of all tenants, for operators.
	Tenant string
	// Troubled selects only those that are failing, have a Trouble, or were not disabled by a person.
	Troubled bool
	// After continues after this endpoint of an earlier page, and Limit is at most 1,000, the default.
	After store.EndpointPlace
	Limit int
}

const maxPage = 1000

// List returns endpoints in the order of tenant and id, which is that of creation.
func (e *Endpoints) List(ctx context.Context, q Query) ([]Endpoint, error) {
	row := store.EndpointQuery{Troubled: q.Troubled, After: q.After, Limit: min(cmp.Or(q.Limit, maxPage), maxPage)}
	if q.Tenant != "" {
		row.Tenants = []string{q.Tenant}
	}
	return e.list(ctx, row)
}

// InTrouble counts the endpoints of each tenant with some that [Query.Troubled] selects, by tenant, of at most limit
// tenants.
func (e *Endpoints) InTrouble(ctx context.Context, limit int) ([]store.EndpointCount, error) {
	return e.store.EndpointCounts(ctx, limit)
}

func (e *Endpoints) list(ctx context.Context, q store.EndpointQuery) ([]Endpoint, error) {
	if _, err := e.execer(); err != nil {
		return nil, err
	}
	reader, _ := e.tx.(store.RowsQuerier)
	rows, err := e.store.Endpoints(ctx, reader, q)
	if err != nil {
		return nil, err
	}
	all := make([]Endpoint, len(rows))
	for i := range rows {
		if all[i], err = e.vault.endpoint(&rows[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Update changes the settings of an endpoint: change gets it as it is, and changes its Settings. Other
// fields stay. An error of change is returned, and nothing is written. Trouble ends, until a notification shows it
// again. It fails with [ErrInvalid], [ErrUnknown], or with [ErrChanged] if someone else changes the
// endpoint at the same time.
func (e *Endpoints) Update(ctx context.Context, tenant, id string, change func(*Endpoint) error) (Endpoint, error) {
	return e.change(ctx, "update", tenant, id, func(now *Endpoint) error {
		set := *now
		set.Types, set.Headers = slices.Clone(now.Types), maps.Clone(now.Headers)
		if err := change(&set); err != nil {
			return err
		}
		if len(set.Types) == 0 {
			set.Types = []string{"*"}
		}
		if err := set.check(&e.config, e.in.Types); err != nil {
			return err
		}
		now.Settings, now.private.Headers, now.Trouble = set.Settings, set.Headers, ""
		return nil
	})
}

// errUnchanged is what a change returns that has nothing to write. It is written nevertheless in a transaction
// that does not read, and may have changed the endpoint before.
var errUnchanged = errors.New("the endpoint is as it should be")

// change reads an endpoint, changes it and writes it. what is the name of that.
func (e *Endpoints) change(ctx context.Context, what, tenant, id string, change func(*Endpoint) error) (Endpoint, error) {
	tx, err := e.execer()
	if err != nil {
		return Endpoint{}, err
	}
	now, err := e.Get(ctx, tenant, id)
	if err != nil {
		return Endpoint{}, err
	}
	if now.broken != nil {
		return Endpoint{}, now.broken
	}
	err = change(&now)
	if _, reads := e.tx.(store.RowsQuerier); errors.Is(err, errUnchanged) && (tx == nil || reads) {
		return now, nil
	}
	if err != nil && !errors.Is(err, errUnchanged) {
		return Endpoint{}, err
	}
	row, err := e.row(&now)
	if err != nil {
		return Endpoint{}, err
	}
	err = e.record(ctx, what, tenant, id, func() error {
		changed, err := e.store.ChangeEndpoint(ctx, tx, row)
		if err == nil && !changed {
			err = fmt.Errorf("%w: %s: read it again, and repeat the change", ErrChanged, id)
		}
		return err
	})
	if err != nil {
		return Endpoint{}, err
	}
	now.Version++
	now.ChangedAt = time.Now().UTC().Truncate(time.Microsecond)
	return now, nil
}

// Rotate gives an endpoint a new secret of the same kind, and returns it, which is not shown again. The old
// one signs as well for Config.SecretOverlap, so that the customer has time to replace it. Secrets that
// ended before are forgotten; if there are more than three, so is the oldest.
func (e *Endpoints) Rotate(ctx context.Context, tenant, id string) (Endpoint, string, error) {
	signs := ""
	rotated, err := e.change(ctx, "rotate", tenant, id, func(now *Endpoint) (err error) {
		at := time.Now().UTC()
		before := now.private.Secrets
		if signs, err = newSecret(len(before) > 0 && shown(before[0].Secret) != before[0].Secret); err != nil {
			return err
		}
		kept := []signing{{Secret: signs}}
		for _, s := range before {
			if s.Until.IsZero() {
				s.Until = at.Add(e.config.SecretOverlap)
			}
			if s.Until.After(at) && len(kept) < maxSecrets {
				kept = append(kept, s)
			}
		}
		now.private.Secrets = kept
		return nil
	})
	if err != nil {
		return Endpoint{}, "", err
	}
	return rotated, shown(signs), nil
}

// maxSecrets is how many secrets sign a request at most.
const maxSecrets = 4

// Secret returns what the customer verifies requests with now: the newest secret, or its public key. It is
// for a page of the customer alone; nothing else shows secrets again.
func (e *Endpoints) Secret(ctx context.Context, tenant, id string) (string, error) {
	now, err := e.Get(ctx, tenant, id)
	if err != nil {
		return "", err
	}
	if now.broken != nil {
		return "", now.broken
	}
	return shown(now.private.Secrets[0].Secret), nil
}

// Disable lets an endpoint get nothing more, whatever the reason; [store.DisabledByPerson] if it is "". What it
// has not got yet becomes dead with its next attempt, and can be recovered: see [Endpoints.Recover]. It does
// nothing to an endpoint that is disabled.
func (e *Endpoints) Disable(ctx context.Context, tenant, id, reason string) (Endpoint, error) {
	return e.change(ctx, "disable", tenant, id, func(now *Endpoint) error {
		if err := checkText(reason, maxDescription); err != nil {
			return err
		}
		if !now.Enabled() {
			return errUnchanged
		}
		now.DisabledReason, now.DisabledAt = cmp.Or(reason, store.DisabledByPerson), time.Now().UTC().Truncate(time.Microsecond)
		return nil
	})
}

// Enable lets an endpoint get notifications again, and forgets since when it failed. It gets nothing of
// what its tenant got meanwhile. It does nothing to an endpoint that is enabled and well.
func (e *Endpoints) Enable(ctx context.Context, tenant, id string) (Endpoint, error) {
	return e.change(ctx, "enable", tenant, id, func(now *Endpoint) error {
		if now.Enabled() && now.FailingSince.IsZero() && now.Trouble == "" {
			return errUnchanged
		}
		now.DisabledReason, now.DisabledAt, now.FailingSince, now.Trouble = "", time.Time{}, time.Time{}, ""
		return nil
	})
}

// Delete removes an endpoint. It gets nothing more: what it has not got yet counts as delivered. Its attempts are
// shown to no one from then on; they stay in the database until the end of Config.AttemptsRetention. It fails with
// ErrUnknown.
func (e *Endpoints) Delete(ctx context.Context, tenant, id string) error {
	tx, err := e.execer()
	if err != nil {
		return err
	}
	if e.records { // what is not there is no action
		if _, err := e.Get(ctx, tenant, id); err != nil {
			return err
		}
	}
	return e.record(ctx, "delete", tenant, id, func() error {
		deleted, err := e.store.DeleteEndpoint(ctx, tx, tenant, id)
		if err == nil && !deleted {
			err = fmt.Errorf("%w %q of tenant %q", ErrUnknown, id, tenant)
		}
		return err
	})
}

// row returns an endpoint as the store keeps it.
func (e *Endpoints) row(made *Endpoint) (store.Endpoint, error) {
	text, err := e.vault.seal(made.ID, made.private)
	if err != nil {
		return store.Endpoint{}, err
	}
	return store.Endpoint{
		ID: made.ID, Tenant: made.Tenant, URL: made.URL, Description: made.Description, Types: made.Types, When: made.When,
		Private: text, Rate: made.Rate.String(), DisabledReason: made.DisabledReason, DisabledAt: made.DisabledAt,
		FailingSince: made.FailingSince, Trouble: made.Trouble, CreatedAt: made.CreatedAt, ChangedAt: made.ChangedAt, Version: made.Version,
	}, nil
}

// endpoint returns a row as an endpoint.
func (v *vault) endpoint(row *store.Endpoint) (Endpoint, error) {
	made := Endpoint{
		Settings: Settings{URL: row.URL, Description: row.Description, Types: row.Types, When: row.When},
		ID:       row.ID, Tenant: row.Tenant, DisabledReason: row.DisabledReason, DisabledAt: row.DisabledAt, FailingSince: row.FailingSince,
		Trouble: row.Trouble, CreatedAt: row.CreatedAt, ChangedAt: row.ChangedAt, Version: row.Version,
	}
	var err error
	if row.Rate != "" {
		if made.Rate, err = settings.ParseRate(row.Rate); err != nil {
			return made, fmt.Errorf("endpoint %s: rate: %w", row.ID, err)
		}
	}
	if made.private, err = v.open(row.ID, row.Private); err != nil {
		made.broken = fmt.Errorf("endpoint %s: %w", row.ID, err)
	}
	made.Headers = made.private.Headers
	return made, nil
}
