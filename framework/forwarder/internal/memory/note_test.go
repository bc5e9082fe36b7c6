package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/store"
)

func TestANoteIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		noted := rapid.SliceOf(rapid.Custom(func(t *rapid.T) memory.Noted {
			ref := store.Ref{Offset: rapid.Int64Range(1, 1<<62).Draw(t, "offset"), ID: rapid.String().Draw(t, "id")}
			if rapid.Bool().Draw(t, "from the log") {
				return memory.NotedOf(ref, memory.Row{FromLog: true})
			}
			return memory.NotedOf(ref, memory.Row{Attempt: rapid.IntRange(1, 9).Draw(t, "attempt"), State: store.StateRetrying,
				FirstParked: time.Unix(rapid.Int64Range(0, 1<<37).Draw(t, "first"), 0).UTC()})
		}))
		n := memory.Note{Epoch: rapid.Int64().Draw(t, "epoch"), Of: 3, Number: rapid.Int64().Draw(t, "number"), Made: noted.Draw(t, "made"), Owed: noted.Draw(t, "owed")}
		raw, err := n.Encode()
		require.NoError(t, err)
		got, err := memory.DecodeNote(raw)
		require.NoError(t, err)
		require.Equal(t, n.Epoch, got.Epoch)
		require.Equal(t, n.Number, got.Number)
		require.ElementsMatch(t, n.Made, got.Made)
		require.ElementsMatch(t, n.Owed, got.Owed)
	})
}

func TestAnInvalidNoteIsAnError(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{``, `[]`, `{}`, `{"version":2}`, `{"version":1,"made":"AA=="}`, `{"version":1,"owed":"gICAgICAgICAgICAgA=="}`} {
		_, err := memory.DecodeNote([]byte(raw))
		require.ErrorIs(t, err, memory.ErrNote, raw)
	}
}

func TestAnOwedDeliveryIsMetOnceIfItIsUnchanged(t *testing.T) {
	t.Parallel()
	parked := memory.Row{Attempt: 2, State: store.StateRetrying, FirstParked: time.Unix(5, 0)}
	before := parked
	before.Attempt--
	owed := memory.NewOwed([]memory.Noted{
		memory.NotedOf(store.Ref{Offset: 1, ID: "a"}, memory.Row{FromLog: true}),
		memory.NotedOf(store.Ref{Offset: 2, ID: "b"}, parked),
		memory.NotedOf(store.Ref{Offset: 3, ID: "c"}, parked),
	})
	fromLog := memory.Row{FromLog: true}
	require.False(t, owed.Met(store.Ref{Offset: 1, ID: "another that has its offset"}, fromLog))
	require.False(t, owed.Met(store.Ref{Offset: 2, ID: "b"}, fromLog))
	require.True(t, owed.Met(store.Ref{Offset: 1, ID: "a"}, fromLog))
	require.False(t, owed.Met(store.Ref{Offset: 1, ID: "a"}, fromLog))
	require.True(t, owed.Met(store.Ref{Offset: 2, ID: "b"}, before))
	requeued := before
	requeued.Attempt = 0
	require.False(t, owed.Met(store.Ref{Offset: 3, ID: "c"}, requeued), "an operator has requeued it")
}
