package forwarder_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// unknownTo is a sink of a process that does not yet know a type.
func unknownTo(typ string) *script {
	return &script{answer: func(_ context.Context, d *notification.Delivery) error {
		if d.Type == typ {
			return sinks.Unknown(errors.New("type is not registered: " + typ))
		}
		return nil
	}}
}

func TestAnUnknownTypeIsRetriedWithoutSpendingAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := unknownTo("new")
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{MaxAttempts: 2, Initial: time.Second}})
		o.append("new", "k", "a")
		o.append("old", "k", "b")
		o.append("old", "", "c")
		time.Sleep(time.Hour)
		synctest.Wait()
		given := s.given()
		require.ElementsMatch(t, []string{"a", "c"}, given[:2], "b waits behind a, which has the same key")
		require.Greater(t, len(given), 60, "a minute is the longest pause")
		require.Less(t, len(given), 100, "and the pauses grow")
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		require.Equal(t, 1, s.attempts["a"])
		require.Zero(t, value[int](o, `SELECT attempt FROM outbox_parked WHERE id = 'a'`))
		require.Zero(t, f.Stats()[0].Dead)
		f.end()

		next := &script{} // the sink of the process that replaces the first
		f = o.one(forwarder.Sink{Sink: next})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, next.given())
		require.Equal(t, 1, next.attempts["a"])
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestAnUnknownTypeIsDeadAfterTheMaximumTime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := unknownTo("new")
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 4 * time.Hour}})
		o.append("new", "k", "a")
		o.append("old", "k", "b")
		time.Sleep(71 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"sink dead a"}, o.parked(), "its key continues")
		require.Contains(t, value[string](o, `SELECT last_error FROM outbox_parked`), forwarder.ErrUnknownTooLong.Error()+" (72h0m0s): unknown: type is not registered: new")
		f.end()
	})
}

func TestOtherFailuresOfATypeThatWasUnknownSpendAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		began := time.Now()
		s.answer = func(context.Context, *notification.Delivery) error {
			if time.Since(began) < time.Hour {
				return sinks.Unknown(errors.New("unknown type"))
			}
			return errors.New("500")
		}
		f := o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{MaxAttempts: 3, Initial: time.Second}})
		o.append("new", "", "a")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"sink dead a"}, o.parked())
		require.Equal(t, 3, value[int](o, `SELECT attempt FROM outbox_parked`))
		f.end()
	})
}
