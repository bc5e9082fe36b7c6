package webhooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// Freshness is how long before an attempt the sink has read the endpoint at most.
const Freshness = time.Second

const (
	// loadTime bounds the time for reading endpoints.
	loadTime = 10 * time.Second
	// maxExpected is how many endpoints a query reads besides those that are waited for.
	maxExpected = 2000
	// maxKnown is how many endpoints are remembered at least; beyond that, old ones are forgotten.
	maxKnown = 20_000
)

// residence is a sink's work in one outbox. It remembers the endpoints that it has read.
type residence struct {
	store     Store
	publisher *outbox.Publisher
	vault     *vault
	private   atomic.Pointer[privacy.Keyring] // nil: private values are not decrypted
	memory    memory
	thinking  thinking

	mu       sync.Mutex
	known    map[string]*known
	expected map[string]bool // endpoints of which deliveries have been read
	next     *load           // the next query; nil: no delivery waits for one
	loading  bool
}

// load is a query for endpoints.
type load struct {
	ids  []string
	done chan struct{}
	err  error
}

// known is an endpoint as it was read. It is not changed, except that it is read again.
type known struct {
	Endpoint
	keys    httpsink.Keys
	until   time.Time        // when one of the keys no longer signs; zero: never
	when    *route.Condition // nil: always
	noKeys  error
	noWhen  error
	limiter *rate.Limiter // nil: no limit
	readAt  time.Time
	row     string // differs if the endpoint was made again with the same id
	goodAt  time.Time
	deleted bool
}

// endpoint returns an endpoint that was read within Freshness, or just now if it cannot get its delivery:
// a person may enable it, and recover its deliveries, in one breath. Those that are asked for while a query runs are
// read together by the next one.
func (r *residence) endpoint(ctx context.Context, id string) (*known, error) {
	r.mu.Lock()
	if k := r.known[id]; k != nil && time.Since(k.readAt) < Freshness && !k.deleted && k.Enabled() && k.noKeys == nil {
		r.mu.Unlock()
		return k, nil
	}
	if r.next == nil {
		r.next = &load{done: make(chan struct{})}
	}
	l := r.next
	l.ids = append(l.ids, id)
	if !r.loading {
		r.loading = true
		go r.load()
	}
	r.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.err != nil {
		return nil, l.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[id]; k != nil {
		return k, nil
	}
	return nil, errors.New("the endpoint was read too slowly") // it was forgotten meanwhile
}

// expect notes that an endpoint will be needed soon, so that the next query reads it, too.
func (r *residence) expect(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[id]; (k == nil || time.Since(k.readAt) > Freshness/2) && len(r.expected) < maxExpected {
		r.expected[id] = true
	}
}

// load makes queries until no delivery waits for one.
func (r *residence) load() {
	for {
		r.mu.Lock()
		l := r.next
		if r.next = nil; l == nil {
			r.loading = false
			r.mu.Unlock()
			return
		}
		l.ids = slices.AppendSeq(l.ids, maps.Keys(r.expected))
		clear(r.expected)
		r.mu.Unlock()
		r.read(l)
		close(l.done)
	}
}

func (r *residence) read(l *load) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	asked := time.Now()
	rows, err := r.store.Endpoints(ctx, nil, store.EndpointQuery{IDs: l.ids})
	if err != nil {
		l.err = fmt.Errorf("read the endpoints: %w", err)
		return
	}
	r.learn(rows, asked, l.ids)
}

// learn remembers endpoints as they were at a time. Those of ids that are not among the rows are deleted.
func (r *residence) learn(rows []store.Endpoint, asked time.Time, ids []string) []*known {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(asked)
	all := make([]*known, len(rows))
	for i := range rows {
		all[i] = r.parsed(&rows[i], asked)
		r.known[rows[i].ID] = all[i]
	}
	for _, id := range ids {
		if k := r.known[id]; k == nil || k.readAt.Before(asked) {
			r.known[id] = &known{deleted: true, readAt: asked}
		}
	}
	return all
}

// succeeded remembers when an endpoint has accepted a request, so that an earlier failure is no news.
func (r *residence) succeeded(id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.known[id]; before != nil {
		k := *before
		k.goodAt = at
		r.known[id] = &k
	}
}

// present returns what is known of an endpoint now, or what an attempt knew.
func (r *residence) present(a *attempt) *known {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[a.Endpoint]; k != nil {
		return k
	}
	return a.endpoint
}

// failing remembers that endpoints are failing, as a checkpoint has just written, so that a success before they are
// read again ends that.
func (r *residence) failing(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if before := r.known[id]; before != nil && before.FailingSince.IsZero() {
			k := *before
			k.FailingSince = time.Now()
			r.known[id] = &k
		}
	}
}

// forget makes room.
func (r *residence) forget(now time.Time) {
	if len(r.known) < maxKnown {
		return
	}
	for id, k := range r.known {
		limits := k.limiter != nil && k.limiter.TokensAt(now) < float64(k.limiter.Burst()) // otherwise a new one does the same
		if now.Sub(k.readAt) > Freshness && !limits {
			delete(r.known, id)
		}
	}
}

// parsed returns what a row says. Of a row whose settings have not changed, nothing is parsed again.
func (r *residence) parsed(row *store.Endpoint, asked time.Time) *known {
	old := r.known[row.ID]
	if old != nil && !old.deleted && old.Version == row.Version && old.row == row.Private+row.URL && old.CreatedAt.Equal(row.CreatedAt) && (old.until.IsZero() || asked.Before(old.until)) {
		k := *old
		k.FailingSince, k.Trouble, k.readAt = row.FailingSince, row.Trouble, asked
		return &k
	}
	k := &known{readAt: asked, row: row.Private + row.URL}
	if k.Endpoint, k.noKeys = r.vault.endpoint(row); k.noKeys == nil {
		k.noKeys = k.broken
	}
	if k.noKeys == nil {
		k.until = k.private.until(asked)
		if k.keys, k.noKeys = httpsink.ParseSecrets(k.private.at(asked)); k.noKeys != nil {
			k.noKeys = fmt.Errorf("endpoint %s: %w", row.ID, k.noKeys)
		}
	}
	if k.When != "" {
		k.when, k.noWhen = route.CompileCondition(k.When)
	}
	switch {
	case old != nil && old.limiter != nil && old.Rate == k.Rate:
		k.limiter = old.limiter
	case k.Rate.Events > 0:
		k.limiter = rate.NewLimiter(rate.Limit(k.Rate.Events/k.Rate.Per.Seconds()), max(k.Rate.Burst, int(k.Rate.Events/k.Rate.Per.Seconds()), 1))
	}
	return k
}

// thinking bounds the time that the conditions of one tenant take, which would hold up the others: a tenth of a
// processor, and limits.thinking at once.
type thinking struct {
	mu   sync.Mutex
	free map[string]time.Time // by tenant: when all of its time is free again
}

const thinkingShare = 10

// may reports whether a tenant has time left, of most at once.
func (t *thinking) may(tenant string, most time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free[tenant].Sub(now) < most*thinkingShare
}

// took records that a condition of a tenant was evaluated.
func (t *thinking) took(tenant string, from, to time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == nil {
		t.free = make(map[string]time.Time)
	}
	if len(t.free) >= maxKnown {
		maps.DeleteFunc(t.free, func(_ string, free time.Time) bool { return free.Before(to) })
	}
	free := t.free[tenant]
	if free.Before(from) {
		free = from
	}
	t.free[tenant] = free.Add(to.Sub(from) * thinkingShare)
}
