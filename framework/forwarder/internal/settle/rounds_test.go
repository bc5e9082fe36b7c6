package settle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/store"
)

func TestANoteOfOtherCursorsIsStaleAndSaysWhy(t *testing.T) {
	t.Parallel()
	lane := store.Lanes("bank", 2)[1]
	for name, x := range map[string]struct {
		note memory.Note
		says string
	}{
		"a higher lease":     {memory.Note{Epoch: 30, Of: 2}, "it was written under lease 30 of the lane, and the lease of this forwarder is number 28, which must be higher: "},
		"the same lease":     {memory.Note{Epoch: 28, Of: 2}, "it was written under lease 28 of the lane, and the lease of this forwarder is number 28, which must be higher: "},
		"another cut":        {memory.Note{Epoch: 27, Of: 4}, "it belongs to one of 4 lanes, but this is one of 2"},
		"the previous lease": {memory.Note{Epoch: 27, Of: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := x.note.Encode()
			require.NoError(t, err)
			_, stale, err := settle.Recover(store.Lease{Lane: lane, Epoch: 28}, raw)
			require.NoError(t, err)
			require.Contains(t, stale, x.says)
			require.Equal(t, x.says == "", stale == "")
		})
	}
}

func TestANoteNamesWhatItsCheckpointHasNotWritten(t *testing.T) {
	t.Parallel()
	noted := func(offset int64) []memory.Noted {
		return []memory.Noted{memory.NotedOf(store.Ref{Offset: offset, ID: "n"}, memory.Row{FromLog: true})}
	}
	const number = 7
	raw, err := (&memory.Note{Epoch: 27, Of: 2, Number: number, Made: noted(1), Owed: noted(2)}).Encode()
	require.NoError(t, err)
	for checkpoint, named := range map[int64]memory.Owed{
		number - 1: memory.NewOwed(noted(1), noted(2)),
		number:     memory.NewOwed(noted(2)),
		number + 1: memory.NewOwed(noted(2)),
	} {
		owed, stale, err := settle.Recover(store.Lease{Lane: store.Lanes("bank", 2)[1], Epoch: 28, Checkpoint: checkpoint}, raw)
		require.NoError(t, err)
		require.Empty(t, stale)
		require.Equal(t, named, owed, "the last checkpoint is number %d", checkpoint)
	}
}
