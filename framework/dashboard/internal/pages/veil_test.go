package pages

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

func TestViewersSeeTheClassesOfReceiversErrorsOnly(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		const answered = `permanent: http://127.0.0.1/hook: 422 Unprocessable Entity: {"Email":"ada@example.org"}`
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		o.exec(t, `INSERT INTO outbox (id, type, key, payload) VALUES ('first', 'order.placed', 'order-1', '{}')`)
		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error)
			VALUES ('partner', 1, 1, 'first', 'order.placed', 1, 'order-1', '2026-01-02T03:04:05.000000Z', '{}', '{}', 'dead', 3, $1)`, answered)
		p := newPages(t, &target.Target{Store: o.store})
		for path, shows := range map[string]bool{
			"/": true, "/sinks/partner": true, "/parked": true, "/parked?sink=partner": true, "/notifications/first": true, "/notifications/first?chain=1": true, "/forwarders": false, "/find?q=first": false, "/find?q=ada@example.org": false,
		} {
			_, page := p.ask(t, access.Viewer, http.MethodGet, path, nil)
			require.Equal(t, shows, strings.Contains(page, "http 422"), "%s: %s", path, page)
			require.NotContains(t, strings.ReplaceAll(page, `value="ada@example.org"`, ""), ">ada@example.org", path)
			require.NotContains(t, page, "Unprocessable", path)
			_, page = p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.Equal(t, shows, strings.Contains(page, "Unprocessable"), "%s: %s", path, page)
		}
		status, _ := p.ask(t, access.Viewer, http.MethodGet, "/parked?reason=ada@example.org", nil)
		require.Equal(t, http.StatusForbidden, status, "a filter would answer guesses")
		status, _ = p.ask(t, access.Viewer, http.MethodGet, "/doctor", nil)
		require.Equal(t, http.StatusForbidden, status)
	})
}

func TestAListShowsNoErrorsThatRepeatWhatIsMasked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('partner', 0, 1)`)
		for i, typ := range []string{"order.placed", "customer.moved"} {
			o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, last_error, first_parked_at)
				VALUES ('partner', $1, 1, $2, $3, 1, '', '2026-01-02T03:04:05.000000Z', '{}', '{"name": "Lovelace"}', 'dead', 3, $4, $5)`,
				i+1, typ, typ, "permanent: http://127.0.0.1/"+typ+": 422 no Lovelace", fmt.Sprintf("2026-01-02T03:04:%02d.000000Z", i))
		}
		p := newPages(t, &target.Target{Store: o.store})
		p.Masks = masks.Of(map[string][]string{"customer.*": {"name"}})
		_, page := p.ask(t, access.Operator, http.MethodGet, "/parked", nil)
		require.Contains(t, page, "http://127.0.0.1/order.placed: 422 no Lovelace")
		require.NotContains(t, page, "http://127.0.0.1/customer.moved")
		require.Contains(t, page, ">http 422</span>")
		_, page = p.ask(t, access.Operator, http.MethodGet, "/", nil)
		require.NotContains(t, page, "Lovelace", "the last error is one of that type")
		require.Contains(t, page, "2 deliveries dead: permanent, http 422")
		_, page = p.ask(t, access.Operator, http.MethodGet, "/notifications/customer.moved", nil)
		require.Contains(t, page, "http://127.0.0.1/customer.moved: 422 no •••")
	})
}
