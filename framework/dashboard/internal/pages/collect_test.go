package pages

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

func TestMembersOfACollectionAreShownWithTheirGroup(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, collect_group)
			VALUES ('partner', 1, 1, 'first', 'order.placed', 1, '', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'collecting', 0, 'cart-17'),
			       ('partner', 2, 1, 'second', 'order.placed', 1, '', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'collecting', 0, 'cart-18')`)
		o.exec(t, `INSERT INTO outbox_collections (sink, collect_group, slot, members, due_at, due_by)
			VALUES ('partner', 'cart-17', 1, 1, '2100-01-02T12:00:00.000000Z', '2100-01-02T12:00:00.000000Z'), ('partner', 'cart-18', 1, 1, '2100-01-02T12:00:00.000000Z', '2100-01-02T12:00:00.000000Z')`)
		routing := admin.Routing{Collect: func(string) settings.Collect { return settings.Collect{By: "metadata.cart"} }}
		p := newPages(t, &target.Target{Store: o.store, Routing: routing})
		p.Masks = masks.Of(map[string][]string{"*": {"email"}})
		_, page := p.ask(t, access.Viewer, http.MethodGet, "/parked?group=cart-17&sink=partner", nil)
		require.Contains(t, page, "waits for its collection")
		require.Contains(t, page, "The open collection of cart-17")
		require.Contains(t, page, "2100-01-02 12:00:00Z")
		require.NotContains(t, page, "second")
		_, page = p.ask(t, access.Viewer, http.MethodGet, "/sinks/partner", nil)
		require.Regexp(t, `in <span data-live="collections">2</span> collections,`, page)
		_, page = p.ask(t, access.Viewer, http.MethodGet, "/notifications/first", nil)
		require.Contains(t, page, "waits in collection cart-17 with no others")

		require.Equal(t, []string{"discard"}, sinkVerdict{Parked: &parkedRow{store.ParkedDelivery{Parked: store.Parked{State: store.StateCollecting}}}}.Acts())
		first := store.Parked{State: store.StateCollecting, Collection: "n1", DueAt: time.Now()}
		require.Equal(t, []string{"requeue", "discard"}, sinkVerdict{Parked: &parkedRow{store.ParkedDelivery{Parked: first}}}.Acts())

		p.Masks = masks.Of(map[string][]string{"*": {"cart"}})
		for _, path := range []string{"/parked", "/notifications/first"} {
			_, page = p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.NotContains(t, page, "cart-17", path)
			require.Contains(t, page, "collecting", path)
		}
		status, _ := p.ask(t, access.Operator, http.MethodGet, "/parked?group=cart-17&sink=partner", nil)
		require.Equal(t, http.StatusBadRequest, status, "a filter would answer guesses")
	})
}
