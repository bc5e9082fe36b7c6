package crashtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

var onThisMachine = webhooks.Config{
	ClientConfig:  httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}, Timeout: 5 * time.Second},
	SecretOverlap: time.Hour,
}

// customers is a program that delivers orders to customers' endpoints.
func (s *story) customers(ctx context.Context, o *waybill.Outbox) error {
	sink, err := webhooks.New(sinks.Instance{Name: "customers"}, onThisMachine)
	if err != nil {
		return err
	}
	of := o.Deliver("customers", sink, "order.*")
	of.Retry = forwarder.Retry{MaxAttempts: 10_000, Initial: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	of.Breaker.MaxPause = 100 * time.Millisecond // some endpoints are always flaky
	of.Parallelism.Threshold = 16
	return o.Run(ctx)
}

const (
	crashTenants = 3
	crashKeys    = 4 // of a tenant
	// crashOrders and crashEndpoints bound the work of a tenant.
	crashOrders, crashEndpoints = 400, 15
	// crashRequests are about as much work as an effect of the other programs.
	crashRequests = 20
)

// business is an application whose customers' endpoints come, go, fail and rotate while it takes orders.
type business struct {
	t         *testing.T
	db        *sql.DB
	publisher *outbox.Publisher
	endpoints *webhooks.Endpoints
	server    *httptest.Server
	clock     atomic.Int64 // orders what happens in this process
	requests  atomic.Int64

	mu        sync.Mutex
	orders    []crashOrder
	addresses map[string]*address // by the path of the URL
}

// crashOrder is a committed order. began and ended are when its transaction began, and had committed.
type crashOrder struct {
	ID, Tenant, Key string
	Number          int // of its key
	began, ended    int64
}

// address is an endpoint, and what came to it.
type address struct {
	tenant, id string
	secrets    []string // as they are known to the customer
	flaky      bool
	made       int64 // when its creation had committed
	deleted    int64 // when its deletion had committed; 0: never
	got        []crashOrder
	ids        map[string]string // of the requests, by order
	wrong      []string
}

// serve is the customers' server.
func (b *business) serve(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	b.mu.Lock()
	to := b.addresses[r.URL.Path]
	var secrets []string
	if to != nil {
		secrets = slices.Clone(to.secrets)
	}
	b.mu.Unlock()
	if to == nil {
		http.Error(w, "unknown", http.StatusNotFound) // its creation has not returned yet
		return
	}
	verified, err := webhook.Receiver{Secrets: secrets}.Verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.accept(w, r, to) }))
	if !assert.NoError(b.t, err) {
		return
	}
	verified.ServeHTTP(w, r)
}

func (b *business) accept(w http.ResponseWriter, r *http.Request, to *address) {
	if to.flaky && rand.IntN(3) == 0 {
		http.Error(w, "flaky", []int{400, 404, 500, 503}[rand.IntN(4)])
		return
	}
	raw, err := io.ReadAll(r.Body)
	if !assert.NoError(b.t, err) {
		return
	}
	var body struct{ Data crashOrder }
	if !assert.NoError(b.t, json.Unmarshal(raw, &body)) {
		return
	}
	order, id := body.Data, r.Header.Get("Webhook-Id")
	now := b.clock.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case order.Tenant != to.tenant:
		to.wrong = append(to.wrong, "an order of "+order.Tenant)
	case to.ids[order.ID] != "" && to.ids[order.ID] != id:
		to.wrong = append(to.wrong, order.ID+" has two ids")
	}
	if to.ids[order.ID] == "" {
		to.ids[order.ID] = id
		order.began = now
		to.got = append(to.got, order)
	}
}

// order places orders until ctx is done.
func (b *business) order(ctx context.Context, tenant string) {
	numbers := make([]int, crashKeys)
	for n := 0; n < crashOrders && ctx.Err() == nil; n++ {
		key := rand.IntN(crashKeys)
		numbers[key]++
		placed := crashOrder{ID: fmt.Sprintf("%s-%d", tenant, n), Tenant: tenant, Key: fmt.Sprint(key), Number: numbers[key], began: b.clock.Add(1)}
		payload, err := json.Marshal(placed)
		if !assert.NoError(b.t, err) {
			return
		}
		err = b.publisher.RunInTx(context.WithoutCancel(ctx), b.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return b.publisher.Append(ctx, tx, notification.Envelope{
				ID: placed.ID, Type: "order.placed", Key: placed.Key, Payload: payload, Metadata: notification.Metadata{"tenant": tenant},
			})
		})
		if !assert.NoError(b.t, err) {
			return
		}
		placed.ended = b.clock.Add(1)
		b.mu.Lock()
		b.orders = append(b.orders, placed)
		b.mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
	}
}

// open creates an endpoint.
func (b *business) open(tenant, path string, flaky bool) (*address, error) {
	made, secret, err := b.endpoints.Create(context.Background(), webhooks.NewEndpoint{Tenant: tenant, Settings: webhooks.Settings{URL: b.server.URL + path}})
	if err != nil {
		return nil, err
	}
	to := &address{tenant: tenant, id: made.ID, secrets: []string{secret}, flaky: flaky, ids: make(map[string]string)}
	b.mu.Lock()
	defer b.mu.Unlock()
	to.made = b.clock.Add(1)
	b.addresses[path] = to
	return to, nil
}

// rotate gives an endpoint new secrets until ctx is done. The customer learns each after it signs, and forgets the one before last.
func (b *business) rotate(ctx context.Context, to *address) {
	for ctx.Err() == nil {
		_, secret, err := b.endpoints.Rotate(context.Background(), to.tenant, to.id)
		if err != nil {
			if !errors.Is(err, webhooks.ErrChanged) {
				assert.NoError(b.t, err)
				return
			}
			continue
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		b.mu.Lock()
		to.secrets = []string{secret}
		if rand.IntN(2) == 0 {
			to.secrets = append(to.secrets, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
		}
		b.mu.Unlock()
		time.Sleep(webhooks.Freshness)
	}
}

// comeAndGo creates endpoints, disables, enables and deletes them, until ctx is done.
func (b *business) comeAndGo(ctx context.Context, tenant string) {
	for n := 0; n < crashEndpoints && ctx.Err() == nil; n++ {
		to, err := b.open(tenant, fmt.Sprintf("/%s/%d", tenant, n), rand.IntN(2) == 0)
		if !assert.NoError(b.t, err) {
			return
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		switch rand.IntN(3) {
		case 0:
			continue // it stays
		case 1:
			err = again(func() error {
				_, err := b.endpoints.Disable(context.Background(), tenant, to.id, "a test")
				return err
			})
			assert.NoError(b.t, err)
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			err = again(func() error {
				_, err := b.endpoints.Enable(context.Background(), tenant, to.id)
				return err
			})
			assert.NoError(b.t, err)
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		}
		assert.NoError(b.t, b.endpoints.Delete(context.Background(), tenant, to.id))
		b.mu.Lock()
		to.deleted = b.clock.Add(1)
		b.mu.Unlock()
	}
}

// again repeats a change that met another one.
func again(change func() error) (err error) {
	for range 20 {
		if err = change(); !errors.Is(err, webhooks.ErrChanged) {
			return err
		}
	}
	return err
}

// check returns what is wrong with what came to the endpoints.
func (b *business) check() (wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]crashOrder)
	for _, o := range b.orders {
		all[o.ID] = o
	}
	for path, to := range b.addresses {
		for _, w := range to.wrong {
			wrong = append(wrong, path+": "+w)
		}
		last := make(map[string]crashOrder)
		for _, o := range to.got {
			if before := last[o.Key]; before.Number > o.Number {
				wrong = append(wrong, fmt.Sprintf("%s: %s of key %s after %s", path, o.ID, o.Key, before.ID))
			}
			last[o.Key] = o
			if to.deleted != 0 && all[o.ID].began > to.deleted {
				wrong = append(wrong, fmt.Sprintf("%s: %s was placed after the deletion", path, o.ID))
			}
		}
		if to.deleted != 0 {
			continue
		}
		for _, o := range b.orders {
			if o.Tenant == to.tenant && o.began > to.made && to.ids[o.ID] == "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s is missing", path, o.ID))
			}
		}
	}
	return wrong
}

func TestEachEndpointGetsWhatItShouldThroughCrashes(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s *stage, newDatabase func() database) {
		d := newDatabase()
		of := d.store.(webhooks.Store)
		b := &business{t: t, db: d.DB, addresses: make(map[string]*address)}
		b.server = httptest.NewServer(http.HandlerFunc(b.serve))
		t.Cleanup(b.server.Close)
		var err error
		b.endpoints, err = webhooks.NewEndpoints(of, sinks.Instance{Name: "customers"}, onThisMachine)
		require.NoError(t, err)
		b.publisher, err = outbox.New(registry.New(), of, outbox.Config{})
		require.NoError(t, err)

		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer stop()
		for i := range crashTenants {
			tenant := fmt.Sprintf("tenant%d", i)
			_, err := b.open(tenant, "/"+tenant+"/steady", false)
			require.NoError(t, err)
			_, err = b.open(tenant, "/"+tenant+"/flaky", true)
			require.NoError(t, err)
			rotating, err := b.open(tenant, "/"+tenant+"/rotating", false)
			require.NoError(t, err)
			work.Go(func() { b.rotate(ctx, rotating) })
			work.Go(func() { b.order(ctx, tenant) })
			work.Go(func() { b.comeAndGo(ctx, tenant) })
		}
		left := ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("left:", left)
			}
		})
		programs := []*actor{{story: story{Program: "customers", Address: d.address}}}
		if isPostgres(d.address) {
			programs = append(programs, &actor{story: programs[0].story})
		}
		s.killRepeatedly(programs, func() int { return int(b.requests.Load()) / crashRequests }, func() bool {
			stop()
			work.Wait()
			left = fmt.Sprint(b.check(), d.left(t))
			return left == "[] []"
		})
		require.Empty(t, b.check())
		require.Empty(t, d.texts(t, `SELECT id FROM outbox WHERE type = '_webhooks' GROUP BY id HAVING count(*) > 1`), "each is published once for an endpoint")
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Logf("%d orders, %d endpoints, %d requests", len(b.orders), len(b.addresses), b.requests.Load())
		var gone int
		for path, to := range b.addresses {
			if strings.HasSuffix(path, "/steady") {
				require.NotEmpty(t, to.got)
			}
			if to.deleted != 0 {
				gone++
			}
		}
		require.NotZero(t, gone)
	})
}

// left returns the work that the outbox still has, besides what is dead.
func (d database) left(t *testing.T) (left []string) {
	t.Helper()
	status, _ := d.sample(t)
	for _, c := range status.Cursors {
		if c.Pending > 0 || c.Estimated {
			left = append(left, fmt.Sprintf("%d pending for %s", c.Pending, c.Sink))
		}
	}
	for _, p := range status.Parked {
		if p.State != store.StateDead {
			left = append(left, fmt.Sprintf("%d %s for %s", p.Count, p.State, p.Sink))
		}
	}
	return left
}
