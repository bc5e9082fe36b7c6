package pages

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/registry"
)

func TestThePageOfATypeShowsItsContractOrWhyThereIsNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		types := registry.New()
		require.NoError(t, registry.Register[struct{ Order string }](types, "order.placed", registry.Version(3), registry.Oldest(3)))
		require.NoError(t, registry.Register[struct{ Signal chan int }](types, "order.wrong"))
		p := newPages(t, &target.Target{Store: o.store, Types: types, Contracts: func() (*contract.Set, error) { return contract.FromTypes(types) }})
		ask := func(path string) string {
			status, page := p.ask(t, access.Viewer, http.MethodGet, path, nil)
			require.Equal(t, http.StatusOK, status, path)
			return page
		}
		page := ask("/types?type=order.placed")
		require.Contains(t, page, "Payload of version 3")
		require.Contains(t, page, `href="/api/v1/types/order.placed/3/schema"`)
		for _, version := range []string{"1", "-1", "99999999999999999999", "x"} {
			require.Contains(t, ask("/types?type=order.placed&version="+version), "Payload of version 3", "there is no version %s", version)
		}
		page = ask("/types?type=order.wrong")
		require.Contains(t, page, "field Signal")
		require.NotContains(t, page, "Payload of version")
		require.NotContains(t, ask("/types?type=order.unknown"), "Payload of version")
	})
}
