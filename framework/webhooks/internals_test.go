package webhooks

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

// A header takes much more memory than its bytes on the wire.
func TestManyHeadersOfAnAnswerAreNotKept(t *testing.T) {
	t.Parallel()
	few := http.Header{"A": {"1", "2"}, "B": {"\x00\xff"}}
	require.Equal(t, map[string][]string{"A": {"1", "2"}, "B": {"\uFFFD\uFFFD"}}, clean(few))
	require.Len(t, clean(http.Header{"A": make([]string, maxValues+1)}), 1)
	require.NotContains(t, clean(http.Header{"A": make([]string, maxValues+1)}), "A")
	require.NotContains(t, clean(http.Header{"A": {string(make([]byte, maxBody))}}), "A")
	require.Greater(t, sizeOf(store.Exchange{Header: clean(few), Body: "body"}), 3*headerBytes)
}

func TestARateOutlivesChangesOfItsEndpointAndForgetting(t *testing.T) {
	t.Parallel()
	l := NewLookup(t, nil)
	row := store.Endpoint{ID: "limited", Version: 1, Rate: "1/h", Private: `{"secrets":[]}`}
	asked := time.Now()
	learn := func() *known { return l.r.learn([]store.Endpoint{row}, asked, nil)[0] }
	first := learn()
	require.True(t, first.limiter.Allow())
	row.Version, row.Description = 2, "changed"
	require.Same(t, first.limiter, learn().limiter)
	for i := range maxKnown {
		l.r.known[fmt.Sprint(i)] = &known{readAt: asked}
	}
	asked = asked.Add(time.Minute)
	l.r.learn(nil, asked, nil)
	require.Len(t, l.r.known, 1)
	require.Same(t, first.limiter, learn().limiter)
	row.Version, row.Rate = 3, "2/h"
	require.NotSame(t, first.limiter, learn().limiter)
}

func TestAnOutboxThatIsNoLongerWorkedOnIsForgotten(t *testing.T) {
	t.Parallel()
	_, s := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	sink, err := New(sinks.Instance{Name: "customers"}, Config{})
	require.NoError(t, err)
	kept, err := sink.Reside("kept", s, nil)
	require.NoError(t, err)
	_, err = sink.Reside("left", s, nil)
	require.NoError(t, err)
	runtime.GC()
	_, err = sink.Reside("new", s, nil)
	require.NoError(t, err)
	require.Contains(t, sink.residences, "kept")
	require.NotContains(t, sink.residences, "left")
	runtime.KeepAlive(kept)
}

func TestATenantsConditionsTakeATenthOfAProcessor(t *testing.T) {
	t.Parallel()
	const most = 500 * time.Millisecond
	var of thinking
	now := time.Now()
	took := time.Duration(0)
	for range 1000 {
		if of.may("slow", most, now) {
			of.took("slow", now, now.Add(20*time.Millisecond))
			took += 20 * time.Millisecond
		}
		now = now.Add(20 * time.Millisecond)
	}
	require.InDelta(t, (most + 2*time.Second).Seconds(), took.Seconds(), 0.05, "in 20 s")
	require.True(t, of.may("other", most, now))
	require.False(t, of.may("slow", most, now))
	require.True(t, of.may("slow", most, now.Add(time.Second)))
}
