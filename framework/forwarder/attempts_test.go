package forwarder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// numbersOf returns the numbers of past attempts, and the forwarders that made them.
func numbersOf(attempts []store.PastAttempt) (numbers []int, by []string) {
	for _, a := range attempts {
		name, _, _ := strings.Cut(a.Forwarder, "/")
		numbers, by = append(numbers, a.Number), append(by, name)
	}
	return numbers, by
}

func TestAttemptsOutliveTheirForwarder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, db := &script{answer: fails(errors.New("503 busy"), always, "a")}, newForgetful(o)
		retry := forwarder.Retry{Initial: 30 * time.Second, Max: 30 * time.Second, MaxAttempts: 7}
		o.append("t", "", "a")
		f := o.one(forwarder.Sink{Sink: s, Retry: retry}, named("first", 1), over(db))
		pass(time.Second)
		require.Equal(t, []string{"sink retrying a"}, o.parked())
		db.fails.Store(true)
		f.abandon()
		o.expireLeases()
		o.exec(`DELETE FROM outbox_forwarders`)
		o.one(forwarder.Sink{Sink: s, Retry: retry}, named("second", 1))
		pass(50 * time.Second)
		numbers, by := numbersOf(o.parkedOf("a").Attempts)
		require.Equal(t, "first", by[len(by)-1])
		require.Equal(t, 1, numbers[len(numbers)-1])
		require.Equal(t, "second", by[0])

		pass(4 * time.Minute)
		dead := o.parkedOf("a")
		require.Equal(t, store.StateDead, dead.State)
		numbers, _ = numbersOf(dead.Attempts)
		require.Equal(t, []int{7, 6, 5, 4, 3}, numbers, "the last five, the newest first")

		p := newOperator(o)
		require.Equal(t, 1, p.requeue(store.ParkedFilter{States: []store.State{store.StateDead}}))
		oneLook()
		numbers, _ = numbersOf(o.parkedOf("a").Attempts)
		require.Contains(t, numbers, 7, "it is seen that it was requeued")
		require.Contains(t, numbers, 1)
		s.mended.Store(true)
		pass(time.Minute)
		require.Empty(t, o.parked())
	})
}

func TestAnAttemptSaysHowItFailed(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			switch d.ID {
			case "panics":
				panic("index out of range")
			case "hangs":
				<-ctx.Done()
				return ctx.Err()
			case "refused":
				return sinks.Permanent(sinks.WithAnswer(errors.New("422"), "no email\n"+strings.Repeat("x", 5000)))
			case "invalid":
				return sinks.Invalid(errors.New("no template"))
			case "strange":
				return sinks.Unknown(errors.New("type is not registered"))
			}
			return nil
		}
		o.append("t", "", "panics", "hangs", "refused", "invalid", "strange", "fine")
		o.append("t", "k", "behind")
		o.one(forwarder.Sink{Sink: &s, Timeout: 10 * time.Second})
		pass(15 * time.Second)
		for id, want := range map[string][]string{
			"panics": {"panic", "sink panicked: index out of range"}, "hangs": {"timeout", "context deadline exceeded"},
			"refused": {"permanent", "422: no email"}, "invalid": {"invalid", "no template"}, "strange": {"unknown", "type is not registered"},
		} {
			p := o.parkedOf(id)
			a := p.Attempts[0]
			require.Equal(t, want, []string{a.Class, a.Error}, id)
			require.True(t, strings.HasPrefix(p.LastError, want[1]), "%s: %s", id, p.LastError)
			require.Regexp(t, "^test/", a.Forwarder)
			require.False(t, a.Began.IsZero())
			class, cause := p.Failure()
			require.Equal(t, want[0], class)
			require.Equal(t, p.LastError, cause)
		}
		require.GreaterOrEqual(t, o.parkedOf("hangs").Attempts[0].Duration, 10*time.Second)
	})
}
