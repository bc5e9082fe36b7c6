package redis_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const maxMessage = 8 << 20

func TestRedis(t *testing.T) {
	server := brokertest.Start(t, brokertest.StartRedis)
	b := broker{server.URL}
	t.Run("an entry has a field for everything", b.testFields)
	t.Run("Watermill's subscriber reads an entry", b.testSubscriber)
	t.Run("a stream is trimmed to its length", b.testMaxLength)
	t.Run("a server that refuses every entry is unavailable", b.testRefusals)
	t.Run("a missing permission for the key is unavailable", b.testNoRight)
	t.Run("a database that does not exist is unavailable", b.testDatabase)
	t.Run("a message above the server's limit is permanent", b.testServerLimit)
	kindtest.Run(t, kindtest.Subject{
		Kind: redis.Kind(), Server: server, Settings: settings, Watch: b.watch,
		Encrypted: func(url string) string { return strings.Replace(url, "redis://", "rediss://", 1) },
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = bytes.Repeat([]byte("x"), maxMessage+1)
			return d
		},
	})
}

func settings(url string) string {
	return "url: '" + url + "'\ntopic: '{{.Type}}'\nmax_message_bytes: 8388608"
}

type broker struct{ url string }

func (b broker) client(t *testing.T) *client.Client {
	t.Helper()
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	password, _ := u.User.Password()
	c := client.NewClient(&client.Options{
		Addr: u.Host, Password: password,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() }) // a subscriber may already have closed it
	return c
}

const stream = "sinktest.happened"

func (b broker) entries(t *testing.T) []client.XMessage {
	t.Helper()
	entries, err := b.client(t).XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	return entries
}

func (b broker) empty(t *testing.T) {
	t.Helper()
	require.NoError(t, b.client(t).Del(t.Context(), stream).Err())
}

func (b broker) watch(t *testing.T) func() []*message.Message {
	b.empty(t)
	return func() (all []*message.Message) {
		for _, entry := range b.entries(t) {
			m, err := redis.Marshaler{}.Unmarshal(entry.Values)
			require.NoError(t, err)
			all = append(all, m)
		}
		return all
	}
}

func (b broker) sink(t *testing.T, settings string) sinks.Sink {
	t.Helper()
	return kindtest.New(t, redis.Kind(), sinks.Instance{}, "url: '"+b.url+"'\ntopic: '{{.Type}}'\n"+settings)
}

func (b broker) testFields(t *testing.T) {
	b.empty(t)
	d := sinktest.NewDelivery(1)
	d.Metadata["id"] = "of the application"
	_, err := b.sink(t, "").Deliver(t.Context(), d)
	require.NoError(t, err)
	entries := b.entries(t)
	require.Len(t, entries, 1)
	require.Equal(t, map[string]any{
		"id": d.ID, "payload": string(d.Payload), "type": "sinktest.happened", "version": "2", "key": "key-1",
		"occurred-on": "2025-01-02T03:04:05.000678Z", "content-type": "application/json",
		"correlation-id": "correlation-1", "metadata-id": "of the application",
	}, entries[0].Values)
}

func (b broker) testSubscriber(t *testing.T) {
	b.empty(t)
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: b.client(t), Unmarshaller: redis.Marshaler{}, ConsumerGroup: "billing", OldestId: "0",
	}, watermill.NopLogger{})
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(t.Context(), stream)
	require.NoError(t, err)
	d := sinktest.NewDelivery(1)
	_, err = b.sink(t, "").Deliver(t.Context(), d)
	require.NoError(t, err)
	select {
	case m := <-messages:
		require.Equal(t, d.ID, m.UUID)
		require.Equal(t, "key-1", m.Metadata.Get("key"))
		m.Ack()
	case <-time.After(kindtest.Patience):
		t.Fatal("no message came")
	}
}

func (b broker) testMaxLength(t *testing.T) {
	b.empty(t)
	sink := b.sink(t, "max_length: 100")
	for n := range 300 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.NoError(t, err)
	}
	require.Less(t, len(b.entries(t)), 300, "the server trims whole nodes of 100 entries")
}

// testRefusals brings the server into each of the states.
func (b broker) testRefusals(t *testing.T) {
	sink := b.sink(t, "")
	set := func(name, value string) func(*testing.T, *client.Client) {
		return func(t *testing.T, c *client.Client) {
			require.NoError(t, c.ConfigSet(t.Context(), name, value).Err())
		}
	}
	for code, state := range map[string]struct {
		begin, end func(*testing.T, *client.Client)
	}{
		"OOM":        {set("maxmemory", "1"), set("maxmemory", "0")},
		"NOREPLICAS": {set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0")},
		"READONLY": {
			func(t *testing.T, c *client.Client) {
				require.NoError(t, c.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
			},
			func(t *testing.T, c *client.Client) { require.NoError(t, c.ReplicaOf(t.Context(), "no", "one").Err()) },
		},
		"WRONGTYPE": {
			func(t *testing.T, c *client.Client) { require.NoError(t, c.Set(t.Context(), stream, "text", 0).Err()) },
			func(t *testing.T, c *client.Client) { require.NoError(t, c.Del(t.Context(), stream).Err()) },
		},
	} {
		t.Run(code, func(t *testing.T) {
			b.empty(t)
			c := b.client(t)
			state.begin(t, c)
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
			state.end(t, c)
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			require.ErrorContains(t, err, code)
			_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
			require.NoError(t, err)
		})
	}
}

// testNoRight uses a user with the permissions that the sink needs, but for other keys.
func (b broker) testNoRight(t *testing.T) {
	b.empty(t)
	c := b.client(t)
	require.NoError(t, c.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">p@ss/word", "~orders*", "+xadd", "+ping").Err())
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	sink := kindtest.New(t, redis.Kind(), sinks.Instance{}, "{url: 'redis://"+u.Host+"', user: app, password: p@ss/word, topic: '{{.Key}}'}")
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	d := sinktest.NewDelivery(1)
	_, err = sink.Deliver(t.Context(), d)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "NOPERM")
	d.Key = "orders"
	_, err = sink.Deliver(t.Context(), d)
	require.NoError(t, err)
}
