package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	natsclient "github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

// asProgram is an environment variable that makes the test binary run the program.
const asProgram = "TEST_RUNS_THE_PROGRAM"

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || filepath.Base(os.Args[0]) == "waybill" {
		main()
		return
	}
	os.Exit(awstest.Main(m))
}

func command(ctx context.Context, environ []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), environ...)
	return cmd
}

func run(t *testing.T, environ []string, args ...string) (output string, code int) {
	t.Helper()
	text, err := command(t.Context(), environ, args...).CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return string(text), ended.ExitCode()
	}
	require.NoError(t, err)
	return string(text), 0
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

const docs = "../../../../docs"

// pages are those of the kinds that cmd/waybill does not have, and the number of their examples.
var pages = map[string]int{
	"sinks-publisher.md": 3,
	"sinks-aws.md":       2,
	"sinks-gcp.md":       3,
}

func TestTheExamplesOfTheDocumentationAreValid(t *testing.T) {
	t.Parallel()
	for page, examples := range pages {
		text, err := os.ReadFile(filepath.Join(docs, page))
		require.NoError(t, err)
		var configurations [][]string
		for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(block[1], "sinks:\n") {
				configurations = append(configurations, block)
			}
		}
		require.Len(t, configurations, examples, page)
		for _, block := range configurations {
			output, code := run(t, []string{"RABBITMQ_PASSWORD=secret one", "NATS_TOKEN=two", "REDIS_PASSWORD=three"},
				"config", "check", "--offline", "-c", write(t, block[1]))
			require.Zero(t, code, "%s\n%s", block[1], output)
		}
	}
}

func TestTheReferencesHaveAllKinds(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	output, code := run(t, nil, "docs", folder)
	require.Zero(t, code, output)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		written, err := os.ReadFile(filepath.Join(folder, file.Name()))
		require.NoError(t, err)
		committed, err := os.ReadFile(filepath.Join(docs, file.Name()))
		require.NoError(t, err)
		require.Equal(t, string(committed), string(written), "run go generate ./framework/program")
	}
}

func TestTheSchemaHasTheKinds(t *testing.T) {
	t.Parallel()
	output, code := run(t, nil, "config", "schema")
	require.Zero(t, code, output)
	require.True(t, json.Valid([]byte(output)))
	for _, kind := range []string{"rabbitmq", "nats", "redis", "http", "sqs", "sns", "eventbridge", "kinesis", "pubsub"} {
		require.Contains(t, output, `"`+kind+`"`)
	}
}

func TestTheSmallProgramNamesTheOneThatHasAKind(t *testing.T) {
	t.Parallel()
	file := func(kind string) string {
		return write(t, "database: sqlite:outbox.db\nsinks:\n  a: {kind: "+kind+"}\nroutes: {'*': [a]}\n")
	}
	output, code := run(t, nil, "config", "check", "--offline", "-c", file("no-such-kind"))
	require.Equal(t, 2, code, output)
	_, all, found := strings.Cut(output, "known are ")
	require.True(t, found, output)
	all, _, _ = strings.Cut(all, "\n")
	unknown := 0
	for _, kind := range strings.Split(all, ", ") {
		var said strings.Builder
		program.Run(t.Context(), program.Call{Args: []string{"config", "check", "--offline", "-c", file(kind)}, Stdout: &said, Stderr: &said})
		if strings.Contains(said.String(), "unknown sink kind") {
			unknown++
			require.Contains(t, said.String(), "the program waybill-all has it", "add the kind to kindsOfAll of framework/config")
		}
	}
	require.NotZero(t, unknown)
}

func TestLicencesOfAllModulesAreShown(t *testing.T) {
	t.Parallel()
	output, code := run(t, nil, "version", "--licenses")
	require.Zero(t, code, output)
	for _, module := range []string{"github.com/lib/pq: MIT\n", "github.com/nats-io/nats.go: Apache-2.0\n"} {
		require.Contains(t, output, module)
	}
}

// mistakes has settings that are all wrong, and their errors.
var mistakes = map[string]struct {
	settings string
	says     []string
}{
	"rabbitmq": {
		`{url: "http://user:hunter2@host", password: hunter2hunter2, exchange_type: topic, timeout: 1ms, tls: {key_file: x}, encoding: {register: true}}`,
		[]string{"url: its scheme is not offered", "user: is missing", "exchange: is missing", "topic: topic cannot be used: it is empty", "timeout: 1ms is too short", "encoding.format: is missing"},
	},
	"nats": {
		`{servers: ["nats://hunter2@host", "http://user:hunter2@host"], password: hunter2hunter2, token: hunter2hunter2, stream: "a.b", topic: "{{.Typ}}", tls: {cert_file: x}, timeout: 1ms, encoding: {format: xml, registry: {url: "http://user:hunter2@host"}}}`,
		[]string{"servers: address 1 contains a user or token", "servers: address 2 is not like", "user: only one of", "stream: \"a.b\"", "topic: topic cannot be used", "tls.key_file: is missing", "timeout: 1ms is too short", "encoding.format is \"xml\"", "encoding.registry.url: contains a user"},
	},
	"redis": {
		`{url: "redis://user:hunter2@host/shop?hunter2", max_length: -1, max_message_bytes: 0, tls: {insecure: true}, timeout: 1ms, encoding: {format: avro, subject: name, registry: {auth: {password: hunter2}}}}`,
		[]string{"url: its path is not the number", "url: has options", "tls: is set", "topic: topic cannot be used", "max_length: -1 is below 0", "max_message_bytes: 0 is below 1", "timeout: 1ms is too short", "encoding.subject is \"name\"", "encoding.registry.url: is missing", "encoding.registry.auth.user: is missing"},
	},
	"sqs": {
		`{queue: "a b", secret_access_key: hunter2, session_token: hunter2, endpoint: "http://user:hunter2@host", timeout: 1ms, max_bytes: 1, external_id: hunter2, attributes: [id], large: {above: 1}}`,
		[]string{"queue: \"a b\"", "access_key_id: is missing", "endpoint: has a user", "timeout: 1ms is outside", "max_bytes: 1 is outside", "role_arn: is missing", "attributes: every message", "large.above: is for"},
	},
	"sns":         {`{topic: "a b", secret_access_key: hunter2}`, []string{"topic: \"a b\"", "access_key_id: is missing"}},
	"eventbridge": {`{bus: "a b", secret_access_key: hunter2}`, []string{"bus: \"a b\"", "source: is missing", "access_key_id: is missing"}},
	"kinesis":     {`{stream: "a b", secret_access_key: hunter2, encoding: {format: avro}}`, []string{"stream: \"a b\"", "access_key_id: is missing", "encoding: is for format"}},
	"pubsub":      {`{topic: "a b", endpoint: "user:hunter2@host", timeout: 1ms}`, []string{"topic: \"a b\"", "endpoint: ", "timeout: 1ms is less"}},
}

func TestAllMistakesAreReportedAtOnceAndQuoteNoSecret(t *testing.T) {
	t.Parallel()
	for kind, c := range mistakes {
		output, code := run(t, nil, "config", "check", "--offline", "-c",
			write(t, "database: sqlite:outbox.db\nsinks:\n  a: {kind: "+kind+", with: "+c.settings+"}\nroutes: {'*': [a]}\n"))
		require.Equal(t, 2, code, output)
		for _, says := range c.says {
			require.Contains(t, output, says)
		}
		require.NotContains(t, output, "hunter2")
	}
}

func TestConfigShowPrintsNoSecret(t *testing.T) {
	t.Parallel()
	output, code := run(t, nil, "config", "show", "-c", write(t, `
database: sqlite:outbox.db
sinks:
  a: {kind: rabbitmq, with: {url: "amqp://user:hunter2@host/shop", topic: x}}
  b: {kind: rabbitmq, with: {url: "amqp://host/shop", user: user, password: hunter2, topic: x}}
  c: {kind: nats, with: {servers: ["nats://hunter2@host:4222", "nats://user:hunter2@host:4222"], topic: x}}
  d: {kind: nats, with: {servers: ["nats://host:4222"], token: hunter2, topic: x}}
  e: {kind: redis, with: {url: "rediss://:hunter2@host", topic: x, encoding: {format: avro, registry: {url: "https://host", auth: {user: user, password: hunter2}}}}}
  f: {kind: sqs, with: {queue: orders, access_key_id: AKIA, secret_access_key: hunter2, session_token: hunter2}}
  g: {kind: sns, with: {topic: orders, access_key_id: AKIA, secret_access_key: hunter2, session_token: hunter2}}
routes: {"*": [a, b, c, d, e, f, g]}
`))
	require.Zero(t, code, output)
	require.NotContains(t, output, "hunter2")
	require.Contains(t, output, "amqp://user:***@host/shop")
}

// destination is a real broker, the settings of a sink for it, and the receipt.
type destination struct {
	start    func(context.Context) (*brokertest.Broker, error)
	settings string // %s is the URL
	prepare  func(t *testing.T, url string)
	received func(t *testing.T, url string) int
}

var destinations = map[string]destination{
	"rabbitmq": {
		brokertest.StartRabbitMQ, `{url: "%s", topic: orders}`,
		func(t *testing.T, url string) {
			onRabbitMQ(t, url, func(c *amqp.Channel) {
				_, err := c.QueueDeclare("orders", true, false, false, false, nil)
				require.NoError(t, err)
			})
		},
		func(t *testing.T, url string) (n int) {
			onRabbitMQ(t, url, func(c *amqp.Channel) {
				queue, err := c.QueueDeclarePassive("orders", true, false, false, false, nil)
				require.NoError(t, err)
				n = queue.Messages
			})
			return n
		},
	},
	"nats": {
		brokertest.StartNATS, `{servers: ["%s"], stream: ORDERS, topic: "{{.Type}}"}`,
		func(t *testing.T, url string) {
			onNATS(t, url, func(js natsclient.JetStreamContext) {
				_, err := js.AddStream(&natsclient.StreamConfig{Name: "ORDERS", Subjects: []string{"order.>"}})
				require.NoError(t, err)
			})
		},
		func(t *testing.T, url string) (n int) {
			onNATS(t, url, func(js natsclient.JetStreamContext) {
				info, err := js.StreamInfo("ORDERS")
				require.NoError(t, err)
				n = int(info.State.Msgs)
			})
			return n
		},
	},
	"redis": {
		brokertest.StartRedis, `{url: "%s", topic: orders}`,
		func(*testing.T, string) {},
		func(t *testing.T, address string) int {
			options, err := redis.ParseURL(address)
			require.NoError(t, err)
			client := redis.NewClient(options)
			defer client.Close()
			n, err := client.XLen(t.Context(), "orders").Result()
			require.NoError(t, err)
			return int(n)
		},
	},
}

func onRabbitMQ(t *testing.T, url string, use func(*amqp.Channel)) {
	t.Helper()
	connection, err := amqp.Dial(url)
	require.NoError(t, err)
	defer connection.Close()
	channel, err := connection.Channel()
	require.NoError(t, err)
	use(channel)
}

func onNATS(t *testing.T, url string, use func(natsclient.JetStreamContext)) {
	t.Helper()
	connection, err := natsclient.Connect(url)
	require.NoError(t, err)
	defer connection.Close()
	js, err := connection.JetStream()
	require.NoError(t, err)
	use(js)
}

func TestForwardDeliversToARealBroker(t *testing.T) {
	for kind, d := range destinations {
		t.Run(kind, func(t *testing.T) { d.test(t, kind) })
	}
}

func (d destination) test(t *testing.T, kind string) {
	server := brokertest.Start(t, d.start)
	d.prepare(t, server.URL)
	database := filepath.Join(t.TempDir(), "outbox.db")
	config := func(address string) string {
		return write(t, "database: sqlite:"+database+"\nsinks:\n  broker: {kind: "+kind+", with: "+
			fmt.Sprintf(d.settings, address)+"}\nroutes: {'*': [broker]}\n")
	}
	file := config(server.URL)
	output, code := run(t, nil, "migrate", "-c", file)
	require.Zero(t, code, output)
	output, code = run(t, nil, "config", "check", "-c", file)
	require.Zero(t, code, output)

	wrong, err := url.Parse(server.URL)
	require.NoError(t, err)
	wrong.User = url.UserPassword(wrong.User.Username(), "is wrong")
	output, code = run(t, nil, "config", "check", "-c", config(wrong.String()))
	require.NotZero(t, code, output)
	require.NotContains(t, output, "wrong")

	publish(t, database, 10)
	forward := command(t.Context(), nil, "forward", "-c", file)
	log := new(strings.Builder)
	forward.Stdout, forward.Stderr = log, log
	require.NoError(t, forward.Start())
	arrived := eventually(func() bool { return d.received(t, server.URL) >= 10 })
	require.NoError(t, forward.Process.Signal(syscall.SIGTERM))
	err = forward.Wait()
	require.True(t, arrived, "%s", log)
	require.NoError(t, err, "%s", log)
}

func eventually(is func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}

// publish inserts rows with SQL, like a program in another language.
func publish(t *testing.T, file string, n int) {
	t.Helper()
	db, err := sqlite.OpenDB(file)
	require.NoError(t, err)
	defer db.Close()
	for i := range n {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', ?, ?)`,
			fmt.Sprint("customer-", i), fmt.Appendf(nil, `{"order":%d}`, i))
		require.NoError(t, err)
	}
}

var update = flag.Bool("update", false, "record the golden file as it is")

func TestTheAsyncAPIHasTheKindsAndNoSecrets(t *testing.T) {
	t.Parallel()
	document, code := run(t, nil, "types", "asyncapi", "-c", "testdata/asyncapi.yaml")
	require.Zero(t, code, document)
	require.NotContains(t, document, "hunter2")
	if *update {
		require.NoError(t, os.WriteFile("testdata/asyncapi.json", []byte(document), 0o644))
	}
	want, err := os.ReadFile("testdata/asyncapi.json")
	require.NoError(t, err)
	require.Equal(t, string(want), document)
}
