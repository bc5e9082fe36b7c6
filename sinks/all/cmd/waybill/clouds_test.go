package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
)

// A forwarder loses nothing to outages, and keeps the keys in order, which the FIFO queue and the stream show.
func TestOutagesOfACloudHaveNoVictims(t *testing.T) {
	const rows = 120
	for kind, prepare := range map[string]func(t *testing.T, server string) (settings string, bodies func() []string){
		"sqs": func(t *testing.T, server string) (string, func() []string) {
			queue := awstest.NewQueue(t, server, "outages.fifo", map[string]string{"FifoQueue": "true"})
			var bodies []string
			return "queue: outages.fifo", func() []string {
				for _, m := range queue.Take(t) {
					bodies = append(bodies, *m.Body)
				}
				return bodies
			}
		},
		"kinesis": func(t *testing.T, server string) (string, func() []string) {
			client := kinesis.NewFromConfig(awstest.Config(server))
			stream := aws.String("outages")
			_, err := client.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: stream, ShardCount: aws.Int32(1)})
			require.NoError(t, err)
			return "stream: outages, format: payload", func() (bodies []string) {
				at, err := client.GetShardIterator(t.Context(), &kinesis.GetShardIteratorInput{
					StreamName: stream, ShardId: aws.String("shardId-000000000000"), ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
				})
				require.NoError(t, err)
				records, err := client.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: at.ShardIterator})
				require.NoError(t, err)
				for _, r := range records.Records {
					bodies = append(bodies, string(r.Data))
				}
				return bodies
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			server := awstest.InTurn(t, awstest.Moto(t))
			settings, bodies := prepare(t, server)
			proxy := awstest.NewProxy(t, server)
			database := filepath.Join(t.TempDir(), "outbox.db")
			file := write(t, fmt.Sprintf("database: sqlite:%s\nsinks:\n  cloud: {kind: %s, with: {%s, region: eu-central-1, endpoint: %q, timeout: 500ms}}\nroutes: {'*': [cloud]}\n",
				database, kind, settings, proxy.URL))
			output, code := run(t, nil, "migrate", "-c", file)
			require.Zero(t, code, output)
			forward := command(t.Context(), nil, "forward", "-c", file)
			log := new(strings.Builder)
			forward.Stdout, forward.Stderr = log, log
			require.NoError(t, forward.Start())
			faults := []awstest.Fault{
				awstest.Refuse(http.StatusBadRequest, "ThrottlingException"),
				awstest.Refuse(http.StatusForbidden, "AccessDeniedException"),
				awstest.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable"),
				awstest.Cut(server, true),
				awstest.Hang,
			}
			for i, fault := range faults {
				proxy.Break(fault)
				publishOrders(t, database, i*rows/len(faults), rows/len(faults))
				time.Sleep(300 * time.Millisecond) // it does not matter how far the forwarder comes
				proxy.Break(nil)
			}
			var got []string
			arrived := eventually(func() bool {
				got = unique(bodies())
				return len(got) == rows
			})
			require.NoError(t, forward.Process.Signal(syscall.SIGTERM))
			err := forward.Wait()
			require.True(t, arrived, "%d of %d arrived\n%s", len(got), rows, log)
			require.NoError(t, err, "%s", log)
			output, code = run(t, nil, "parked", "list", "--state", "dead", "-c", file)
			require.Zero(t, code, output)
			require.NotContains(t, output, "order.placed")
			last := make(map[string]string)
			for _, body := range got {
				var order struct{ Customer, Number string }
				require.NoError(t, json.Unmarshal([]byte(body), &order), body)
				require.Less(t, last[order.Customer], order.Number)
				last[order.Customer] = order.Number
			}
		})
	}
}

// publishOrders inserts orders of ten customers, numbered from a number on.
func publishOrders(t *testing.T, file string, from, n int) {
	t.Helper()
	db, err := sqlite.OpenDB(file)
	require.NoError(t, err)
	defer db.Close()
	for i := from; i < from+n; i++ {
		customer := fmt.Sprint("customer-", i%10)
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', ?, ?)`,
			customer, fmt.Appendf(nil, `{"customer":%q,"number":"%06d"}`, customer, i))
		require.NoError(t, err)
	}
}

// unique returns the first of equal texts.
func unique(all []string) (first []string) {
	seen := make(map[string]bool)
	for _, text := range all {
		if !seen[text] {
			seen[text] = true
			first = append(first, text)
		}
	}
	return first
}
