package kafka_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
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
		Idempotent:      new(true),
		Timeout:         10 * time.Second,
		MaxMessageBytes: 1 << 20,
		Client:          kafka.ClientFranz,
	}, c)
}

func TestEverySettingIsAccepted(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c := decode(t, `{brokers: [a:9092, "[::1]:9093"], topic: a.b-c_1, client_id: shop, acks: leader, idempotent: false, timeout: 30s, max_message_bytes: 5000000, client: watermill, compression: `+compression+`}`)
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
		`{brokers: [a:1], topic: "orders.{{.Type"}`:                                             "topic: template: topic:1: unclosed action",
		`{brokers: [a:1], topic: "orders.{{.Typ}}"}`:                                            "topic: template: topic:1",
		`{brokers: [a:1], topic: t, format: avro}`:                                              `format: "avro" is not offered; use json or cloudevents-binary`,
		`{brokers: [a:1], topic: t, format: cloudevents-binary}`:                                "cloudevents.source: is missing",
		`{brokers: [a:1], topic: t, cloudevents: {source: /shop}}`:                              "cloudevents.source: is for format cloudevents-binary",
		`{brokers: [a:1], topic: t, format: cloudevents-binary, cloudevents: {source: "/a b"}}`: `cloudevents.source: "/a b" is not a URI`,
		`{brokers: [a:1], topic: t, format: cloudevents-binary, cloudevents: {source: "http://u:p@shop"}}`: "cloudevents.source: contains a user",
		`{brokers: [a:1], topic: t, client: java}`:                                                         `client: "java" is not offered; use franz-go or watermill`,
		`{brokers: [a:1], topic: t, acks: none}`:                                                           "acks: none",
		`{brokers: [a:1], topic: t, acks: two}`:                                                            `acks: "two"`,
		`{brokers: [a:1], topic: t, acks: leader}`:                                                         "idempotent: needs acks: all",
		`{brokers: [a:1], topic: t, compression: brotli}`:                                                  `compression: "brotli" is unknown; use one of gzip, lz4, none, snappy, zstd`,
		`{brokers: [a:1], topic: t, timeout: 1ms}`:                                                         "timeout: 1ms",
		`{brokers: [a:1], topic: t, max_message_bytes: -1}`:                                                "max_message_bytes: -1",
		`{brokers: [a:1], topic: t, max_message_bytes: 1000000000}`:                                        "max_message_bytes: 1000000000",
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

// Reflection finds the fields, so that new ones are tested too.
func TestDefaultsChangeOnlyZeroFields(t *testing.T) {
	t.Parallel()
	var defaults kafka.Config
	defaults.SetDefaults()
	again := defaults
	again.SetDefaults()
	assert.Equal(t, defaults, again)

	var all kafka.Config
	for _, field := range settings(reflect.ValueOf(&all).Elem(), "") {
		t.Run(field.name, func(t *testing.T) {
			var c kafka.Config
			mine := settings(reflect.ValueOf(&c).Elem(), "")[field.index]
			give(t, mine.value)
			want := mine.value.Interface()
			c.SetDefaults()
			assert.Equal(t, want, mine.value.Interface(), "the field was set")

			mine.value.SetZero()
			c.SetDefaults()
			assert.Equal(t, defaults, c, "the other fields have their defaults")
		})
		give(t, field.value)
	}
	given := all
	all.SetDefaults()
	assert.Equal(t, given, all)
}

type setting struct {
	name  string
	index int
	value reflect.Value
}

// settings lists the fields of a struct and of the structs in it.
func settings(v reflect.Value, path string) (list []setting) {
	for i := range v.NumField() {
		name := path + v.Type().Field(i).Name
		if f := v.Field(i); f.Kind() == reflect.Struct {
			list = append(list, settings(f, name+".")...)
		} else {
			list = append(list, setting{name: name, value: f})
		}
	}
	for i := range list {
		list[i].index = i
	}
	return list
}

// give sets a field to a value that is not a default. A pointer then points to a zero value.
func give(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("given")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(givenByProgram{}))
	default:
		t.Fatalf("a field of kind %s: add a case for it", v.Kind())
	}
}

// givenByProgram implements the interfaces of the fields that a program sets.
type givenByProgram struct {
	kafka.TokenProvider
	wmkafka.Marshaler
}

func TestDefaultsHoldInGoAsInYAML(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink, err := kafka.New(sinks.Instance{Name: "events"}, kafka.Config{Brokers: cluster.Brokers, Topic: topic})
	require.NoError(t, err)
	receipt, err := sink.Deliver(t.Context(), delivery("k"))
	require.NoError(t, err)
	assert.Equal(t, "kafka "+topic+"/0@0", string(receipt))
	require.NoError(t, sink.Close(t.Context()))
}

func decode(t *testing.T, text string) kafka.Config {
	t.Helper()
	var c kafka.Config
	c.SetDefaults()
	require.NoError(t, yaml.Unmarshal([]byte(text), &c))
	return c
}

func TestTheKindBuildsTheSink(t *testing.T) {
	t.Parallel()
	sink, err := kafka.Kind().Build(sinks.Instance{Name: "events"}, func(config any) error {
		c := config.(*kafka.Config)
		c.Brokers, c.Topic = []string{"localhost:9092"}, "orders"
		return nil
	})
	require.NoError(t, err)
	assert.IsType(t, (*kafka.Sink)(nil), sink)
}
