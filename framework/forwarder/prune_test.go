package forwarder_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// forAnHour keeps rows for an hour. To the database all rows are older, since fake time begins in 2000.
func forAnHour(c *forwarder.Config) { c.Retention = time.Hour }

// passes waits until a pruner that keeps rows for an hour has run a few times.
func passes() {
	time.Sleep(3 * time.Minute)
	synctest.Wait()
}

func (o *outbox) rows() int {
	o.t.Helper()
	return value[int](o, `SELECT count(*) FROM outbox`)
}

func TestOldRowsAreRemovedOnceEverySinkHasSettledThem(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "k", numbered("", 20)...)
		var good, bad script
		var mu sync.Mutex
		down := true
		bad.answer = func(context.Context, *notification.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return sinks.Unavailable(errors.New("the destination is down"))
			}
			return nil
		}
		f := o.start(map[string]forwarder.Sink{"good": {Sink: &good}, "bad": {Sink: &bad}},
			route.Routes{"*": route.To("good", "bad")}, forAnHour)
		passes()
		require.Len(t, good.given(), 20)
		require.Equal(t, 20, o.rows())

		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, o.rows())
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_receipts`), "receipts are removed as well")
		f.end()
	})
}

func TestEverythingIsKeptWithoutRetention(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", numbered("", 20)...)
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		passes()
		require.Len(t, s.given(), 20)
		require.Equal(t, 20, o.rows())
		require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox_cursors`), "there is no pruner")
		f.end()
	})
}

func TestAParkedDeliveryIsDeliveredAfterItsRowIsRemoved(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "k", "a", "b")
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "a" && d.Attempt == 1 {
				return errors.New("come back later")
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: time.Hour, Max: time.Hour}}, forAnHour)
		passes()
		require.Equal(t, []string{"a"}, s.given())
		require.Zero(t, o.rows())
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		time.Sleep(75 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, s.given())
		f.end()
	})
}

func TestRowsOfTheFutureDoNotDelayTheRemovalOfLaterRows(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for range 6 { // more rows than the pruner reads at once
			o.append("future", "", numbered("", 1000)...)
		}
		o.exec(`UPDATE outbox SET occurred_on = '3000-01-01T00:00:00.000000Z'`)
		o.append("past", "", numbered("", 10)...)
		var s script
		f := o.one(forwarder.Sink{Sink: &s}, forAnHour)
		passes()
		require.Len(t, s.given(), 6010)
		require.Equal(t, 6000, o.rows())
		f.end()
	})
}

func TestOneForwarderPrunesAndAnotherTakesOver(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		const owner = `SELECT owner FROM outbox_cursors WHERE sink = '_pruner'`
		lease := func(c *forwarder.Config) { c.Lease = time.Minute }
		first := o.one(forwarder.Sink{Sink: &s}, forAnHour, lease)
		first.flush()
		elected := value[string](o, owner)
		second := o.one(forwarder.Sink{Sink: &s}, forAnHour, lease)
		passes()
		require.Equal(t, elected, value[string](o, owner), "the pruner renews its lease")

		first.end()
		passes()
		successor := value[string](o, owner)
		require.NotEmpty(t, successor)
		require.NotEqual(t, elected, successor)
		o.append("t", "", numbered("", 5)...)
		passes()
		require.Zero(t, o.rows())

		o.exec(`UPDATE outbox_cursors SET owner = 'another', epoch = epoch + 1 WHERE sink = '_pruner'`)
		o.append("t", "", numbered("", 5)...)
		time.Sleep(20 * time.Second) // until the lease is due for renewal
		synctest.Wait()
		second.flush()
		o.append("t", "", numbered("", 5)...)
		passes()
		require.GreaterOrEqual(t, o.rows(), 5, "a forwarder that lost the lease removes nothing more")
		second.end()
	})
}

func TestARemovedSinkIsLoggedOnceUntilItIsForgotten(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		both := o.start(map[string]forwarder.Sink{"mail": {Sink: &s}, "old": {Sink: &s}}, route.Routes{"*": route.To("mail", "old")}, forAnHour)
		both.flush()
		both.end()
		o.append("t", "", numbered("", 5)...)

		var log lines
		f := o.start(map[string]forwarder.Sink{"mail": {Sink: &s}}, route.Routes{"*": route.To("mail")}, forAnHour,
			func(c *forwarder.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Equal(t, 5, o.rows())
		warnings := log.with("WARN")
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "sink=old")
		require.Contains(t, warnings[0], "waybill forget old")

		_, err := o.store.Forget(t.Context(), "old")
		require.NoError(t, err)
		passes()
		require.Zero(t, o.rows())
		require.Len(t, log.with("WARN"), 1)
		f.end()
	})
}

// lines returns the logged lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
