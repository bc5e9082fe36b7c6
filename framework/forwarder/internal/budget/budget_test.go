package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fill takes pages for a share until it is full.
func fill(s *Share, page int) {
	for !s.Full() {
		s.Take(page)
	}
}

func TestASingleShareLeavesHalf(t *testing.T) {
	t.Parallel()
	b := New(900)
	s := b.Join(func() {})
	fill(s, 10)
	require.Equal(t, 450, s.Used())
	other := b.Join(func() {})
	fill(other, 10)
	require.InDelta(t, 225, other.Used(), 10, "half of the rest")
}

func TestSharesThatGrowTogetherLeaveRoomForAnother(t *testing.T) {
	t.Parallel()
	const size, page, n = 900, 1, 8
	b := New(size)
	shares := make([]*Share, n)
	for i := range shares {
		shares[i] = b.Join(func() {})
	}
	for took := true; took; {
		took = false
		for _, s := range shares {
			if !s.Full() {
				s.Take(page)
				took = true
			}
		}
	}
	for _, s := range shares {
		require.InDelta(t, size/(n+1), s.Used(), page)
	}
	require.InDelta(t, size/(n+1), b.left, n*page)
}

func TestAWaitingShareIsNotifiedOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	b := New(100)
	notified := 0
	other, s := b.Join(func() {}), b.Join(func() { notified++ })
	other.Take(60)
	s.Take(30)
	require.True(t, s.Wait())
	other.Take(-10)
	require.Zero(t, notified, "20 are left, and the share has 30")
	other.Take(-20)
	require.Equal(t, 1, notified)
	other.Take(-20)
	require.Equal(t, 1, notified, "the share no longer waits")
	require.False(t, s.Wait())
}

func TestAShareThatLeavesReturnsItsMemory(t *testing.T) {
	t.Parallel()
	b := New(100)
	notified := 0
	s, other := b.Join(func() { notified++ }), b.Join(func() { notified++ })
	s.Take(80)
	other.Take(30)
	require.True(t, s.Wait())
	require.True(t, other.Wait())
	s.Leave()
	require.Equal(t, 1, notified, "only the other share is notified")
	require.Equal(t, 70, b.left)
	require.Empty(t, b.waiting)
}

func TestAnEmptyShareIsNeverFull(t *testing.T) {
	t.Parallel()
	b := New(1)
	b.Join(func() {}).Take(5)
	require.False(t, b.Join(func() {}).Full())
}
