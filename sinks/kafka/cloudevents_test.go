package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestAnEventFollowsTheKafkaBinding(t *testing.T) {
	t.Parallel()
	d := delivery("größe 17")
	d.Payload = []byte("{\"total\": 12}\x00\xff")
	d.Metadata = notification.Metadata{
		notification.MetadataContentType: "application/json; charset=utf-8",
		"traceparent":                    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Correlation-ID":                 "50% \"größer\"\n",
		"empty":                          "",
		"---":                            "nameless",
		"type":                           "taken",
	}
	r := deliverEvent(t, d)
	assert.Equal(t, d.Payload, r.Value)
	assert.Equal(t, d.Key, string(r.Key))
	assert.Equal(t, d.OccurredOn.Truncate(time.Millisecond), r.Timestamp.UTC())
	assert.Equal(t, map[string]string{
		"ce_specversion":          "1.0",
		"ce_id":                   d.ID,
		"ce_source":               "/shop",
		"ce_type":                 "order.placed",
		"ce_time":                 d.OccurredOn.Format("2006-01-02T15:04:05.000000Z"),
		"ce_payloadversion":       "2",
		"ce_partitionkey":         "größe 17",
		"ce_correlationid":        "50% \"größer\"%0A",
		"ce_traceparent":          d.Metadata["traceparent"],
		"traceparent":             d.Metadata["traceparent"],
		"content-type":            "application/json; charset=utf-8",
		"_watermill_message_uuid": d.ID,
	}, headersOf(r))
}

func TestAnInvalidMediaTypeBecomesOctetStream(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"": "application/json", "application/json": "application/json", "text/plain": "text/plain",
		"json": "application/octet-stream", "text/plain; x=\"\x01\"": "application/octet-stream",
	} {
		d := delivery("")
		d.Metadata = notification.Metadata{notification.MetadataContentType: given}
		headers := headersOf(deliverEvent(t, d))
		assert.Equal(t, want, headers["content-type"], "%q", given)
		assert.NotContains(t, headers, "ce_partitionkey")
		assert.NotContains(t, headers, "ce_contenttype")
	}
}

// The reference implementation of CloudEvents accepts the records.
func TestOddDeliveriesAreValidEvents(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*notification.Delivery){
		"plain":    func(*notification.Delivery) {},
		"controls": func(d *notification.Delivery) { d.Key, d.Metadata["a"] = "a\x00\x7f\u0085", "\ufffe\xff" },
		"no key":   func(d *notification.Delivery) { d.Key = "" },
		"media":    func(d *notification.Delivery) { d.Metadata[notification.MetadataContentType] = "no media type" },
	} {
		t.Run(name, func(t *testing.T) {
			d := sinktest.NewDelivery(1)
			d.OccurredOn = time.Now().UTC().Truncate(time.Microsecond)
			change(d)
			e := event.New()
			for name, value := range headersOf(deliverEvent(t, d)) {
				switch attribute, is := strings.CutPrefix(name, "ce_"); {
				case name == "content-type":
					e.SetDataContentType(value)
				case !is:
				case attribute == "specversion":
					assert.Equal(t, e.SpecVersion(), value)
				case attribute == "id":
					e.SetID(value)
				case attribute == "source":
					e.SetSource(value)
				case attribute == "type":
					e.SetType(value)
				case attribute == "time":
					at, err := time.Parse(time.RFC3339Nano, value)
					require.NoError(t, err)
					e.SetTime(at)
				default:
					e.SetExtension(attribute, value)
				}
			}
			require.NoError(t, e.Validate())
			assert.Equal(t, d.ID, e.ID())
			assert.Equal(t, d.OccurredOn, e.Time())
		})
	}
}

func deliverEvent(t *testing.T, d *notification.Delivery) *kgo.Record {
	t.Helper()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic, func(c *kafka.Config) {
		c.Format, c.Source = kafka.FormatBinary, "/shop"
	})
	_, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	return cluster.Consume(t, topic, 1)[0]
}
