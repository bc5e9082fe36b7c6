package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks/kafka/watermill"
	"github.com/waybill-go/waybill/sinks/sinktest"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
)

func TestAMinimalConfigurationIsValid(t *testing.T) {
	t.Parallel()
	c := decode(t, `{brokers: [localhost:9092], topic: orders}`)
	require.NoError(t, c.Validate())
	assert.Equal(t, kafka.Config{
		Brokers:         []string{"localhost:9092"},
		Topic:           "orders",
		Format:          kafka.FormatJSON,
		Acks:            kafka.AcksAll,
		Compression:     "none",
		Timeout:         10 * time.Second,
		MaxMessageBytes: 1 << 20,
		Client:          kafka.ClientFranz,
		Collection:      kafka.CollectionRecords,
	}, c)
}

func TestEverySettingIsAccepted(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c := decode(t, `{brokers: [a:9092, "[::1]:9093"], topic: a.b-c_1, acks: leader, timeout: 30s, max_message_bytes: 5000000, compression: `+compression+`}`)
		require.NoError(t, c.Validate())
		_, err := kafka.New(sinks.Instance{Name: "events"}, c)
		require.NoError(t, err)
	}
}

func TestEachMistakeNamesItsField(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{topic: t}`:                                                                            "brokers: at least one",
		`{brokers: [localhost], topic: t}`:                                                      `brokers: "localhost" is not host:port`,
		`{brokers: [":9092"], topic: t}`:                                                        `brokers: ":9092" is not host:port`,
		`{brokers: ["a:70000"], topic: t}`:                                                      `brokers: "a:70000" is not host:port`,
		`{brokers: [a:1]}`:                                                                      "topic: the topic is empty",
		`{brokers: [a:1], topic: "a b"}`:                                                        `topic: "a b"`,
		`{brokers: [a:1], topic: "orders\n"}`:                                                   `topic: "orders\n"`,
		`{brokers: [a:1], topic: ..}`:                                                           `topic: ".."`,
		`{brokers: [a:1], topic: ` + strings.Repeat("x", 250) + `}`:                             "topic: the name is 250 bytes long",
		`{brokers: [a:1], topic: "orders.{{.Type"}`:                                             "topic: template: name:1: unclosed action",
		`{brokers: [a:1], topic: "orders.{{.Typ}}"}`:                                            "topic: template: name:1",
		`{brokers: [a:1], topic: t, format: avro}`:                                              `format: "avro" is not offered; use json or cloudevents-binary`,
		`{brokers: [a:1], topic: t, format: cloudevents-binary}`:                                "source: is missing",
		`{brokers: [a:1], topic: t, source: /shop}`:                                             "source: is for format cloudevents-binary",
		`{brokers: [a:1], topic: t, format: cloudevents-binary, source: "/a b"}`:                `source: "/a b" is not a URI`,
		`{brokers: [a:1], topic: t, format: cloudevents-binary, source: "http://u:p@shop"}`:     "source: contains a user",
		`{brokers: [a:1], topic: t, collection: one}`:                                           `collection: "one" is not offered; use records or array`,
		`{brokers: [a:1], topic: t, collection: array, format: cloudevents-binary, source: /s}`: "collection: array needs format: json",
		`{brokers: [a:1], topic: t, client: java}`:                                              `client: "java" is not offered; use franz-go or watermill`,
		`{brokers: [a:1], topic: t, acks: none}`:                                                "acks: none",
		`{brokers: [a:1], topic: t, acks: two}`:                                                 `acks: "two"`,
		`{brokers: [a:1], topic: t, compression: brotli}`:                                       `compression: "brotli" is unknown; use one of gzip, lz4, none, snappy, zstd`,
		`{brokers: [a:1], topic: t, timeout: 1ms}`:                                              "timeout: 1ms",
		`{brokers: [a:1], topic: t, max_message_bytes: -1}`:                                     "max_message_bytes: -1",
		`{brokers: [a:1], topic: t, max_message_bytes: 1000000000}`:                             "max_message_bytes: 1000000000",
	} {
		t.Run(want, func(t *testing.T) {
			c := decode(t, given)
			assert.ErrorContains(t, c.Validate(), want)
			_, err := kafka.New(sinks.Instance{}, c)
			assert.Error(t, err)
		})
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	c := decode(t, `{brokers: [x, y], acks: none, compression: rar, timeout: 1ms, max_message_bytes: -1}`)
	err := c.Validate()
	for _, field := range []string{`"x"`, `"y"`, "topic:", "acks:", "compression:", "timeout:", "max_message_bytes:"} {
		assert.ErrorContains(t, err, field)
	}
}

func decode(t *testing.T, text string) kafka.Config {
	t.Helper()
	var c kafka.Config
	c.SetDefaults()
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	return c
}

func TestAProgramWithoutALibraryNamesTheImport(t *testing.T) {
	t.Parallel()
	build := func(kind sinks.Kind) (sinks.Sink, error) {
		return kind.Build(sinks.Instance{Name: "events"}, func(config any) error {
			return yaml.Unmarshal([]byte("{brokers: [a:1], topic: t, client: watermill}"), config)
		})
	}
	_, err := build(kafka.Kind())
	require.ErrorContains(t, err, "client: this program lacks watermill; it must import github.com/waybill-go/waybill/sinks/kafka/watermill")
	sink, err := build(kafka.Kind(watermill.Library{}))
	require.NoError(t, err)
	require.Equal(t, 1, sink.(*kafka.Sink).BatchLimits().Size)
	err = (&kafka.Config{Brokers: []string{"a:1"}, Topic: "t", Client: kafka.ClientFranz, Library: watermill.Library{}}).Validate()
	require.ErrorContains(t, err, "client: is franz-go, but the program gave the library watermill")
}

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	sinktest.RunKind(t, kafka.Kind(), kafka.Config{Brokers: []string{"localhost:9092"}, Topic: "orders"})
}
