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

func TestAShareByItselfLeavesHalf(t *testing.T) {
	t.Parallel()
	b := New(900)
	s := b.Join(func() {})
	fill(s, 10)
	require.Equal(t, 450, s.Used())
	other := b.Join(func() {})
	fill(other, 10)
	require.InDelta(t, 225, other.Used(), 10, "half of what is left")
}

func TestSharesThatGrowTogetherLeaveOne(t *testing.T) {
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

func TestAShareThatWaitsIsToldOnceItIsNotFull(t *testing.T) {
	t.Parallel()
	b := New(100)
	told := 0
	other, s := b.Join(func() {}), b.Join(func() { told++ })
	other.Take(60)
	s.Take(30)
	require.True(t, s.Wait())
	other.Take(-10)
	require.Zero(t, told, "20 are left, and it has 30")
	other.Take(-20)
	require.Equal(t, 1, told)
	other.Take(-20)
	require.Equal(t, 1, told, "it does not wait any more")
	require.False(t, s.Wait())
}

func TestAShareThatLeavesGivesAllBack(t *testing.T) {
	t.Parallel()
	b := New(100)
	told := 0
	s, other := b.Join(func() { told++ }), b.Join(func() { told++ })
	s.Take(80)
	other.Take(30)
	require.True(t, s.Wait())
	require.True(t, other.Wait())
	s.Leave()
	require.Equal(t, 1, told, "the other one, and not the one that has left")
	require.Equal(t, 70, b.left)
	require.Empty(t, b.waiting)
}

func TestAShareOfNothingIsNeverFull(t *testing.T) {
	t.Parallel()
	b := New(1)
	b.Join(func() {}).Take(5)
	require.False(t, b.Join(func() {}).Full())
}
