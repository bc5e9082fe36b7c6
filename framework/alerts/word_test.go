package alerts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
)

func TestACommandOfAnAlertIsSafeToCopy(t *testing.T) {
	t.Parallel()
	require.Equal(t, `waybill endpoints show ep_1 --tenant acme`, commandFor(admin.Trouble{What: admin.DisabledEndpoint, Endpoint: "ep_1", Tenant: "acme"}))
	require.Equal(t, `waybill endpoints show ep_1 --tenant 'a'\''; rm -r x #'`, commandFor(admin.Trouble{What: admin.DisabledEndpoint, Endpoint: "ep_1", Tenant: "a'; rm -r x #"}))
	require.Equal(t, `waybill parked list --sink mail --state dead`, commandFor(admin.Trouble{What: admin.DeadLetters, Sink: "mail"}))
}
