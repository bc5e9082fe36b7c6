//go:build kafka

package kafka_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestARealClusterHasEachNotificationOnceThroughCrashes forwards an outbox to Kafka exactly once, and to
// HTTP. Meanwhile forwarders are killed, stopped for longer than their leases and disconnected from
// their database, and the database and the broker restart. Readers of committed records see each
// notification once, and those of a key in order.
func TestARealClusterHasEachNotificationOnceThroughCrashes(t *testing.T) {
	cluster := kafkatest.Real(t)
	o := &once{stages: &stages{t: t, cluster: cluster, topic: cluster.CreateTopic(t, 6, nil), folder: t.TempDir(), binary: filepath.Join(t.TempDir(), "waybill")}}
	output, err := exec.Command("go", "build", "-tags", "failpoint", "-o", o.binary, "github.com/waybill-go/waybill/cmd/waybill").CombinedOutput()
	require.NoError(t, err, "%s", output)

	var harm sync.WaitGroup
	harm.Go(func() {
		if pace.Sleep(t.Context(), onceTime/2) {
			cluster.Stop(t)
			cluster.Start(t)
		}
	})
	report, err := crashtest.Run(t.Context(), crashtest.Config{
		Forwarder: o.forwarder, Upstream: o.compared, Lease: crashLease, Threshold: crashThreshold, Rate: 300, Steps: []string{string(failpoint.Ledger), string(failpoint.Checkpoint)}, Duration: onceTime, Gap: 500 * time.Millisecond, Calm: 2 * time.Minute, Log: t.Output(), RecordTimes: true,
		Checkpoint: onceTime, // generous, since other tests check the repeats over HTTP
	})
	harm.Wait()
	t.Log(report)
	t.Log(o.found)
	require.NoError(t, err)
	require.NotEmpty(t, report.Faults)
	require.Equal(t, report.Committed, o.found.rows)
	require.Zero(t, o.found.missing, "missing")
	require.Zero(t, o.found.repeated, "repeated")
	require.Zero(t, o.found.disordered, "out of order")
}

const onceTime = 20 * time.Second

// once is an outbox that is forwarded to Kafka exactly once.
type once struct {
	*stages
	dsn   string
	found found
}

// found has the records of the topic.
type found struct{ rows, records, missing, repeated, disordered int }

func (f found) String() string {
	return fmt.Sprintf("rows %d, committed records %d: missing %d, repeated %d, out of order %d", f.rows, f.records, f.missing, f.repeated, f.disordered)
}

func (o *once) forwarder(dsn, endpoint string) *exec.Cmd {
	name := fmt.Sprintf("forwarder-%03d", o.forwarders.Add(1))
	config := o.write(name, fmt.Sprintf(`
database: %q
outbox: {lanes: 4}
forwarder: {name: %s, lease: %s, shutdown_timeout: 10s}
sinks:
  recorder:
    kind: http
    with: {url: %q, timeout: 3s}
    parallelism: {threshold: %d}
    retry: {max_attempts: 1000, initial: 50ms, max: 1s}
  log:
    kind: kafka
    with: {brokers: [%q], topic: %q, exactly_once: true, positions: %s-positions}
    retry: {max_attempts: 1000, initial: 50ms, max: 1s}
routes: {"*": [recorder, log]}
`, dsn, name, crashLease, endpoint, crashThreshold, o.cluster.Brokers[0], o.topic, o.topic))
	o.begun.Do(func() {
		// Any forwarder's address will do: all networks work again when the topic is compared.
		o.dsn = dsn
	})
	return o.command(name, "forward", "-c", config)
}

// compared compares the topic with the log after everything is delivered: each row must be there.
func (o *once) compared(ctx context.Context) (map[string]int, error) {
	db, err := postgres.OpenDB(o.dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	o.found = found{}
	last, times := make(map[string]int64), make(map[string]int)
	place, err := rowsOf(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, r := range o.cluster.ConsumeCommitted(o.t, o.topic) {
		o.found.records++
		for _, h := range r.Headers {
			if h.Key == "id" {
				id, key := string(h.Value), string(r.Key)
				times[id]++
				if place[id] > 0 && place[id] <= last[key] {
					o.found.disordered++
				}
				last[key] = max(last[key], place[id])
			}
		}
	}
	o.found.rows = len(place)
	for id := range place {
		o.found.repeated += max(0, times[id]-1)
		if times[id] == 0 {
			o.found.missing++
		}
	}
	if o.found.missing > 0 { // brokers answer a commit before they show its records
		return nil, fmt.Errorf("the topic lacks %d rows", o.found.missing)
	}
	each := make(map[string]int, len(place))
	for id := range place {
		each[id] = 1
	}
	return each, nil
}

// rowsOf returns what publishers committed, with the places within their keys; 0 without an order.
func rowsOf(ctx context.Context, db *sql.DB) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, `SELECT records FROM crash_log`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	place := make(map[string]int64)
	for rows.Next() {
		var text []byte
		var records []struct {
			ID string
			N  int64
		}
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &records); err != nil {
			return nil, err
		}
		for _, r := range records {
			place[r.ID] = r.N
		}
	}
	return place, rows.Err()
}
