package acts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestDeadDeliveriesWaitBehindEarlierOnesOfTheirKey(t *testing.T) {
	t.Parallel()
	at := func(offset int64, key string, dead, behind bool) chosen {
		c := chosen{key: key, dead: dead, behind: behind}
		c.Offset = offset
		return c
	}
	due, wait := inOrder([]chosen{
		at(1, "a", true, false), at(2, "a", true, false), at(3, "", true, false), at(4, "", true, false),
		at(5, "b", true, true), at(6, "c", false, true), at(7, "c", true, false),
	})
	offsets := func(refs []store.Ref) (offsets []int64) {
		for _, r := range refs {
			offsets = append(offsets, r.Offset)
		}
		return offsets
	}
	require.Equal(t, []int64{1, 3, 4, 6}, offsets(due))
	require.Equal(t, []int64{2, 5, 7}, offsets(wait))
}
