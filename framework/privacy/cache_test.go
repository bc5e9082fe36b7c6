package privacy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAKeyIsRememberedNoLongerThanTheCacheSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cache[int]{lifetime: time.Minute}
		c.put("a", 1)
		time.Sleep(59 * time.Second)
		_, found := c.get("a")
		require.True(t, found)
		c.put("b", 2)
		time.Sleep(time.Second)
		_, found = c.get("a")
		require.False(t, found, "also if the generation changed late")
		_, found = c.get("b")
		require.True(t, found)
		time.Sleep(time.Minute)
		_, found = c.get("b")
		require.False(t, found)
	})
}
