package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/registry"
)

// Addresses and forms may contain manipulated cursors and times.
func TestManipulatedAddressesAndFormsAreRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		o.exec(t, `INSERT INTO outbox (id, type, key, payload) VALUES ('first', 'order.placed', 'order-1', '{}')`)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			VALUES ('partner', 7, 1, 'second', 'order.moved', 1, 'order-2', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'dead', 3)`)
		p := newPages(t, &target.Target{Store: o.store})
		places := []string{
			`["a\u0000", 1, "b"]`, `["a", 1, "b\u0000"]`, `["a", 9223372036854775807, "b"]`, `["a", -9223372036854775808, "b"]`, `["a", 1e99, "b"]`,
			`[null, null, null]`, `null`, `[]`, `{}`, `["a"]`, `["a", 1, "b", "c"]`, `["\ud800", 1, "b"]`,
		}
		times := []string{"0000-01-01", "0001-01-01T00:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"}
		for _, place := range places {
			status, page := p.ask(t, access.Viewer, http.MethodGet, "/parked?"+url.Values{"after": {place}}.Encode(), nil)
			require.Less(t, status, 500, "%s: %s", place, page)
			for _, act := range []string{"requeue", "discard", "skip"} {
				form := url.Values{"selected": {place}, "act": {act}, "planned_at": {"2026-01-02T03:04:05Z"}, "expect": {"1"}}
				for _, path := range []string{"/parked/plan", "/parked/act"} {
					status, page = p.ask(t, access.Operator, http.MethodPost, path, form)
					require.Less(t, status, 500, "%s %s: %s", path, place, page)
					require.NotEqual(t, http.StatusSeeOther, status, "%s %s: nothing must be changed", path, place)
				}
			}
		}
		for _, at := range times {
			for _, path := range []string{"/log?since=", "/log?until=", "/sinks/partner/replay?type=all&since=", "/sinks/partner/replay?type=all&until="} {
				status, page := p.ask(t, access.Operator, http.MethodGet, path+url.QueryEscape(at), nil)
				require.Less(t, status, 500, "%s %s: %s", path, at, page)
			}
			form := url.Values{"all": {"discard"}, "planned_at": {at + "T00:00:00Z"}, "expect": {"1"}}
			if len(at) > 10 {
				form.Set("planned_at", at)
			}
			if at != "9999-12-31T23:59:59Z" && at != "9999-12-31T23:59:59-23:59" {
				status, page := p.ask(t, access.Operator, http.MethodPost, "/parked/act", form)
				require.Less(t, status, 500, "%s: %s", at, page)
				require.NotEqual(t, http.StatusSeeOther, status, at)
			}
		}
		const most = "9223372036854775807"
		for _, path := range []string{
			"/log?before=" + most, "/notifications/first?offset=" + most, "/notifications/first?chain=1&from=" + most, "/sinks/partner/replay?type=all&rate=" + most,
			"/parked?older=65535d", "/parked?newer=2562047h", "/parked?older=65535d&newer=2562047h", "/parked?reason=%25", "/parked?reason=%5C", "/parked?reason=_%25%5C%25", "/parked?state=dead%27",
		} {
			status, page := p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.Less(t, status, 500, "%s: %s", path, page)
		}
		// A percent sign is not a wildcard.
		_, page := p.ask(t, access.Viewer, http.MethodGet, "/parked?reason=%25", nil)
		require.NotContains(t, page, "second")
		status, page := p.ask(t, access.Operator, http.MethodPost, "/sinks/partner/replay", url.Values{"type": {"all"}, "up_to": {most}, "expected": {most}, "rate": {"1"}})
		require.Less(t, status, 500, page)
		parked := 0
		require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_parked`).Scan(&parked))
		require.Equal(t, 1, parked, "nothing was changed")
	})
}

// Payloads under an older name of a type are masked too.
func TestAMaskAppliesToAllNamesOfAType(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		for _, name := range []string{"customer.moved", "client.moved", "client.left"} {
			o.exec(t, `INSERT INTO outbox (id, type, key, payload) VALUES ($1, $1, 'k', '{"email": "a@b"}')`, name)
		}
		types := registry.New()
		require.NoError(t, registry.Register[struct{ Email string }](types, "customer.moved", registry.Aliases("client.moved")))
		routes, err := route.New(route.Routes{"*": route.To("events")}, []string{"events"}, types)
		require.NoError(t, err)
		p := newPages(t, &target.Target{Store: o.store, Types: types, Routing: admin.Routing{Routes: routes}})
		for _, pattern := range []string{"customer.moved", "customer.*", "client.moved"} {
			p.Masks = masks.Of(map[string][]string{pattern: {"email"}})
			for _, name := range []string{"customer.moved", "client.moved"} {
				status, page := p.ask(t, access.Operator, http.MethodPost, "/notifications/"+name, nil)
				require.Equal(t, http.StatusOK, status)
				require.Contains(t, page, "•••", "%s by the mask of %s", name, pattern)
				require.NotContains(t, page, "a@b", "%s by the mask of %s", name, pattern)
			}
			_, page := p.ask(t, access.Operator, http.MethodPost, "/notifications/client.left", nil)
			require.Contains(t, page, "a@b", "another type")
		}
	})
}

func TestOnlyOperatorsSeeErrorsOfTheDatabase(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		p := newPages(t, &target.Target{Store: o.store})
		o.exec(t, `DROP TABLE outbox_parked`)
		for role, shown := range map[settings.Role]bool{access.Viewer: false, access.Operator: true} {
			status, page := p.ask(t, role, http.MethodGet, "/parked", nil)
			require.Equal(t, http.StatusInternalServerError, status)
			require.Contains(t, page, "making this page failed")
			require.Equal(t, shown, strings.Contains(page, "outbox_parked"), page)
		}
	})
}
