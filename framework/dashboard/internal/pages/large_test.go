package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/route"
)

// quick is how long the making of a page may take, at the best of five times: what else the
// machine does is no matter of ours.
const quick = 200 * time.Millisecond

// TestEveryPageIsQuickHoweverMuchThereIs fills a log of WAYBILL_DASHBOARD_ROWS, and a tenth of
// them parked, and prints how long each page takes. make bench-dashboard runs it with ten
// million.
func TestEveryPageIsQuickHoweverMuchThereIs(t *testing.T) {
	rows, _ := strconv.Atoi(cmp.Or(os.Getenv("WAYBILL_DASHBOARD_ROWS"), "0"))
	if rows == 0 {
		t.Skip("takes minutes: make bench-dashboard")
	}
	o := databases["postgres"](t)
	o.fill(t, rows)
	routes, err := route.New(route.Routes{"order.*": route.To("events", "partner")}, []string{"events", "partner"}, nil)
	require.NoError(t, err)
	p := newPages(t, &target.Target{
		Store: o.store, Routing: admin.Routing{Routes: routes},
		Doctor:        func(context.Context, ...string) []doctor.Finding { return nil },
		Configuration: func() ([]byte, error) { return []byte("sinks: {}\n"), nil },
	})
	paths := []string{"/find?q=partner", "/find?q=order.placed", "/find?q=key-7"}
	for _, pattern := range p.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		if method == http.MethodGet && path != "/live" {
			paths = append(paths, strings.NewReplacer("{$}", "", "/schedules/{name}", "/schedules/daily", "{name}", "partner", "{act}", "pause", "{id}", "id-"+fmt.Sprint(rows-5)).Replace(path))
		}
	}
	slow := []string{}
	for _, path := range paths {
		took := make([]time.Duration, 5)
		for i := range took {
			began := time.Now()
			status, page := p.ask(t, access.Operator, http.MethodGet, path, nil)
			took[i] = time.Since(began)
			require.Less(t, status, 400, "%s: %s", path, page)
		}
		slices.Sort(took)
		t.Logf("%-32s best %8s  worst %8s", path, took[0].Round(100*time.Microsecond), took[4].Round(100*time.Microsecond))
		if took[0] > quick {
			slow = append(slow, path)
		}
	}
	for _, word := range []string{fmt.Sprintf("id-%d", rows-5), "there-is-no-such-id"} { // bounded, rather than quick
		began := time.Now()
		_, _ = p.ask(t, access.Operator, http.MethodGet, "/find?q="+word, nil)
		t.Logf("%-32s      %8s", "/find?q="+word, time.Since(began).Round(time.Millisecond))
		require.Less(t, time.Since(began), 2*findTime)
	}
	require.Empty(t, slow)
}

// fill publishes rows, parks a tenth of them, and adds what else there is.
func (o outbox) fill(t *testing.T, rows int) {
	began := time.Now()
	o.exec(t, `INSERT INTO outbox (id, type, key, payload, metadata)
		SELECT 'id-' || n, (ARRAY['order.placed', 'order.paid', 'order.shipped', 'parcel.lost'])[1 + n % 4], 'key-' || n % 100000, '{"total": 12}', '{"tenant": "acme"}'
		FROM generate_series(1, $1::int) n`, rows)
	o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at, last_error, first_parked_at)
		SELECT (ARRAY['events', 'partner'])[1 + n % 2], n, n % 1024, 'id-' || n, 'order.placed', 1, 'key-' || n % 100000, now(), '{}', '{"total": 12}',
			(ARRAY['dead', 'retrying', 'blocked', 'dead', 'scheduled'])[1 + n / 2 % 5], 3, CASE WHEN n / 2 % 5 IN (1, 4) THEN now() + interval '1 day' END, 'partner: 503', now() - n * interval '1 second'
		FROM generate_series(1, $1::int / 10) n`, rows)
	o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) SELECT s, l, 4 FROM unnest(ARRAY['events', 'partner']) s, generate_series(0, 3) l`)
	o.exec(t, `INSERT INTO outbox_schedules (name, id) VALUES ('daily', 'a')`)
	o.exec(t, `INSERT INTO outbox_actions (id, who, action, filter) SELECT 'a' || n, 'ada', 'requeue', '{}' FROM generate_series(1, 10000) n`)
	o.exec(t, `VACUUM ANALYZE`)
	t.Logf("%d rows and %d parked deliveries in %s", rows, rows/10, time.Since(began).Round(time.Second))
}
