package pace_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

func TestARestIsProportionalUpToALimit(t *testing.T) {
	t.Parallel()
	rest := pace.Rest{Times: 4, Most: 10 * time.Millisecond}
	require.Zero(t, rest.After(0))
	require.Equal(t, 8*time.Millisecond, rest.After(2*time.Millisecond))
	require.Equal(t, 10*time.Millisecond, rest.After(time.Minute))
}

func TestAShareGrowsWithWhatIsServedUpToALimit(t *testing.T) {
	t.Parallel()
	share := pace.Share{Each: 200 * time.Microsecond, Most: 5 * time.Millisecond}
	require.Zero(t, share.After(0))
	require.Equal(t, 200*time.Microsecond, share.After(1))
	require.Equal(t, 5*time.Millisecond, share.After(25))
	require.Equal(t, 5*time.Millisecond, share.After(1<<62))
}
