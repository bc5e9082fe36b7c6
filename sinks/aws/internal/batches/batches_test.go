package batches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

func entries(sizes ...int) (all []Entry[int]) {
	for i, size := range sizes {
		all = append(all, Entry[int]{Value: i, Bytes: size, Index: i})
	}
	return all
}

func TestRequestsKeepTheLimits(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		want  [][]int
	}{
		{[]int{1, 1, 1, 1}, [][]int{{0, 1, 2}, {3}}},
		{[]int{60, 40, 1}, [][]int{{0, 1}, {2}}},
		{[]int{60, 41, 59, 1}, [][]int{{0}, {1, 2}, {3}}},
		{[]int{500, 1}, [][]int{{0}, {1}}},
		{nil, nil},
	} {
		var got [][]int
		Send(t.Context(), entries(c.sizes...), Limits{Entries: 3, Bytes: 100}, make([]sinks.Result, len(c.sizes)), func(_ context.Context, values []int) ([]sinks.Result, error) {
			got = append(got, values)
			return make([]sinks.Result, len(values)), nil
		})
		require.Equal(t, c.want, got)
	}
}

func TestOnlyEntriesThatTheServiceFailedAreSentAgain(t *testing.T) {
	refused, busy := sinks.Permanent(errors.New("refused")), sinks.Unavailable(errors.New("busy"))
	sent := make(map[int]int)
	results := make([]sinks.Result, 4)
	Send(t.Context(), entries(1, 1, 1, 1), Limits{Entries: 10, Bytes: 100}, results, func(_ context.Context, values []int) ([]sinks.Result, error) {
		its := make([]sinks.Result, len(values))
		for i, v := range values {
			sent[v]++
			switch {
			case v == 1:
				its[i].Err = refused
			case v == 2 && sent[v] < 3, v == 3:
				its[i].Err = busy
			default:
				its[i].Receipt = "done"
			}
		}
		return its, nil
	})
	require.Equal(t, map[int]int{0: 1, 1: 1, 2: 3, 3: tries}, sent)
	require.Equal(t, []sinks.Result{{Receipt: "done"}, {Err: refused}, {Receipt: "done"}, {Err: busy}}, results)
}

func TestTheGuiltyEntryIsFoundByHalves(t *testing.T) {
	refused := sinks.Permanent(errors.New("refused"))
	results := make([]sinks.Result, 9)
	Send(t.Context(), entries(1, 1, 1, 1, 1, 1, 1, 1, 1), Limits{Entries: 10, Bytes: 100}, results, func(_ context.Context, values []int) ([]sinks.Result, error) {
		for _, v := range values {
			if v == 3 || v == 8 {
				return nil, refused
			}
		}
		return make([]sinks.Result, len(values)), nil
	})
	for i, r := range results {
		require.Equal(t, i == 3 || i == 8, r.Err != nil)
	}
}

func TestARequestThatTheServiceRefusesForItselfIsSentOnce(t *testing.T) {
	sent := 0
	results := make([]sinks.Result, 4)
	Send(t.Context(), entries(1, 1, 1, 1), Limits{Entries: 2, Bytes: 100}, results, func(context.Context, []int) ([]sinks.Result, error) {
		sent++
		return nil, sinks.Unavailable(errors.New("down"))
	})
	require.Equal(t, 1, sent, "the other requests are not sent while the service is down")
	for _, r := range results {
		require.Error(t, r.Err)
	}
}

// deliveries returns deliveries with keys.
func deliveries(keys ...string) (all []*notification.Delivery) {
	for _, key := range keys {
		all = append(all, &notification.Delivery{Envelope: &notification.Envelope{Key: key}})
	}
	return all
}

// done is the answer of a service that accepts everything.
func done(_ context.Context, destination string, values []int) ([]sinks.Result, error) {
	results := make([]sinks.Result, len(values))
	for i, v := range values {
		results[i].Receipt = notification.Receipt(fmt.Sprint(destination, v))
	}
	return results, nil
}

func TestDestinationsAreSentToAtTheSameTime(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	results := Deliver(t.Context(), deliveries("a", "b", "none"), Limits{Entries: 10, Bytes: 100},
		func(_ context.Context, i int, e *notification.Envelope) (string, Entry[int], error) {
			if e.Key == "none" {
				return "", Entry[int]{}, sinks.Invalid(errors.New("no name"))
			}
			return e.Key, Entry[int]{Value: i}, nil
		},
		func(ctx context.Context, destination string, values []int) ([]sinks.Result, error) {
			both.Done()
			both.Wait() // for the other one
			return done(ctx, destination, values)
		})
	require.Equal(t, []sinks.Result{{Receipt: "a0"}, {Receipt: "b1"}, {Err: sinks.Invalid(errors.New("no name"))}}, results)
}

func TestAStoreThatIsDownHoldsNothingElseBack(t *testing.T) {
	down := sinks.Unavailable(errors.New("the store is down"))
	results := Deliver(t.Context(), deliveries("down", "stuck", "stuck", "small"), Limits{Entries: 10, Bytes: 100},
		func(ctx context.Context, i int, e *notification.Envelope) (string, Entry[int], error) {
			switch e.Key {
			case "down":
				return "", Entry[int]{}, down
			case "stuck":
				<-ctx.Done()
				return "", Entry[int]{}, ctx.Err()
			}
			return "a", Entry[int]{Value: i}, nil
		}, done)
	require.Equal(t, []sinks.Result{{Err: down}, {Err: down}, {Err: down}, {Receipt: "a3"}}, results)

	ctx, end := context.WithCancel(t.Context())
	end()
	results = Deliver(ctx, deliveries("stuck"), Limits{Entries: 10, Bytes: 100},
		func(ctx context.Context, _ int, _ *notification.Envelope) (string, Entry[int], error) {
			return "", Entry[int]{}, ctx.Err()
		}, done)
	require.Equal(t, []sinks.Result{{Err: context.Canceled}}, results, "the engine ends it")
}

func TestAnIDIsLegal(t *testing.T) {
	require.Equal(t, "order-1/a:b", ID("order-1/a:b"))
	for _, text := range []string{"", "a b", "größe", "a\n", string(make([]byte, 129))} {
		require.Regexp(t, "^[0-9a-f]{64}$", ID(text))
	}
	require.NotEqual(t, ID("a b"), ID("a  b"))
}

func TestNotEveryEntryIsTriedIfTheServiceRefusesAll(t *testing.T) {
	sent := 0
	results := make([]sinks.Result, 500)
	Send(t.Context(), entries(make([]int, 500)...), Limits{Entries: 500, Bytes: 100}, results, func(context.Context, []int) ([]sinks.Result, error) {
		sent++
		return nil, errors.New("a code that is not known")
	})
	require.Less(t, sent, 15)
	for _, r := range results {
		require.Error(t, r.Err)
	}
}
