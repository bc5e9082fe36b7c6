package redis_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func (b broker) testDatabase(t *testing.T) {
	sink := kindtest.New(t, redis.Kind(), sinks.Instance{}, "url: '"+b.url+"/99'\ntopic: shop")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "DB index is out of range")
}

// testServerLimit sends messages after which the server closes the connection, with and without
// permission to read the server's limit.
func (b broker) testServerLimit(t *testing.T) {
	c := b.client(t)
	require.NoError(t, c.ConfigSet(t.Context(), "proto-max-bulk-len", "2097152").Err())
	t.Cleanup(func() {
		require.NoError(t, b.client(t).ConfigSet(context.WithoutCancel(t.Context()), "proto-max-bulk-len", "536870912").Err())
	})
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">hunter22", "~*", "+xadd", "+ping").Err())
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	large := func(change func(*notification.Delivery, []byte)) *notification.Delivery {
		d := sinktest.NewDelivery(1)
		change(d, bytes.Repeat([]byte("x"), 3<<20))
		return d
	}
	payload := large(func(d *notification.Delivery, x []byte) { d.Payload = x })
	metadata := large(func(d *notification.Delivery, x []byte) { d.Metadata["long"] = string(x) })

	sink := b.sink(t, "")
	for range 5 { // the client reads either the server's error or the end of the connection
		for _, d := range []*notification.Delivery{payload, metadata} {
			_, err = sink.Deliver(t.Context(), d)
			require.Equal(t, sinks.ClassPermanent, sinktest.Class(err), "%v", err)
			require.ErrorContains(t, err, "proto-max-bulk-len")
		}
	}
	u.User = url.UserPassword("limited", "hunter22")
	limited := kindtest.New(t, redis.Kind(), sinks.Instance{}, "url: '"+u.String()+"'\ntopic: shop")
	for range 5 {
		_, err = limited.Deliver(t.Context(), payload)
		require.ErrorContains(t, err, "proto-max-bulk-len")
		require.Contains(t, []sinks.Class{sinks.ClassPermanent, sinks.ClassUnavailable}, sinktest.Class(err), "%v", err)
	}
	require.Eventually(t, func() bool { // the next delivery may get a connection that the server is about to close
		_, err := limited.Deliver(t.Context(), sinktest.NewDelivery(2))
		return err == nil
	}, kindtest.Patience, 10*time.Millisecond)
}

func TestNoErrorRepeatsThePayload(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`-ERR unknown command 'xadd', with args beginning with: 'shop' '*' 'payload' '{"n":1,"text"' `,
		"-ERR unknown command `xadd`, with args beginning with: `shop`, `*`, `payload`, `{\"n\":1,\"text\"`, ",
		`-ERR something new about {"n":1,"text"`,
	} {
		sink := kindtest.New(t, redis.Kind(), sinks.Instance{}, settings(server(t, answer)))
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Error(t, err)
		require.NotContains(t, fmt.Sprintf("%+v", err), `"text"`)
		require.ErrorContains(t, err, strings.SplitN(answer[1:], " ", 4)[1])
		if strings.Contains(answer, "unknown command") {
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		}
	}
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestTheClientLogsToTheSinksLogger: the client has one logger for the process, by default
// standard error.
func TestTheClientLogsToTheSinksLogger(t *testing.T) {
	var log lockedBuffer
	sink := kindtest.New(t, redis.Kind(), sinks.Instance{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "url: redis://"+servertest.Unused+"\ntopic: shop")
	_, failure := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Error(t, failure)
	require.Contains(t, log.String(), "failed to dial")
}
