package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/machine"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

var server *database.Server

func TestMain(m *testing.M) {
	var err error
	server, err = database.Start(context.Background(), false)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// careless returns a relay with a defect: it delivers the payloads that deliver returns, and deletes
// the rows that match the condition settled.
func careless(deliver func(payloads [][]byte) [][]byte, settled string) peer.Relay {
	return peer.Relay{Name: "careless", Outbox: peer.Table{}, Deliver: func(ctx context.Context, dsn string, to receiver.Destination) error {
		db, err := postgres.OpenDB(dsn)
		if err != nil {
			return err
		}
		payloads, err := readAll(ctx, db)
		if err != nil {
			return errors.Join(err, db.Close())
		}
		if _, err = db.ExecContext(ctx, `DELETE FROM messages WHERE `+settled); err == nil {
			for _, p := range deliver(payloads) {
				to.Take(p)
			}
		}
		return errors.Join(err, db.Close())
	}}
}

func readAll(ctx context.Context, db *sql.DB) (payloads [][]byte, err error) {
	rows, err := db.QueryContext(ctx, `SELECT payload FROM messages ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p []byte
		if err := rows.Scan(&p); err != nil {
			return nil, err
		}
		payloads = append(payloads, p)
	}
	return payloads, rows.Err()
}

func TestADrainFindsTheMistakesOfARelay(t *testing.T) {
	const backlog = 2500
	whole := func(p [][]byte) [][]byte { return p }
	for name, test := range map[string]struct {
		relay peer.Relay
		want  Sample
	}{
		"nothing":         {careless(whole, "true"), Sample{Complete: true}},
		"one lost":        {careless(func(p [][]byte) [][]byte { return p[1:] }, "true"), Sample{Check: result.Check{Arrived: backlog - 1, Lost: 1}}},
		"one left":        {careless(func(p [][]byte) [][]byte { return p[1:] }, "id > 1"), Sample{Check: result.Check{Arrived: backlog - 1}}},
		"one repeated":    {careless(func(p [][]byte) [][]byte { return append(p[:1:1], p...) }, "true"), Sample{Complete: true, Check: result.Check{Repeated: 1}}},
		"one not settled": {careless(whole, "id > 1"), Sample{Complete: true, Check: result.Check{Unsettled: 1}}},
		"out of order": {
			careless(func(p [][]byte) [][]byte { p[3], p[2003] = p[2003], p[3]; return p }, "true"),
			Sample{Complete: true, Check: result.Check{OutOfOrder: 2}}, // 1003 and 3 arrive after 2003
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := drain{test.relay, receiver.Config{Kind: receiver.Nowhere}, backlog, time.Minute}
			got, err := d.run(t.Context(), server)
			require.NoError(t, err)
			require.Positive(t, got.Metrics["rate"])
			got.Metrics = nil
			test.want.Check.Expected = backlog
			if test.want.Check.Arrived == 0 {
				test.want.Check.Arrived = backlog
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestTheErrorOfARelayIsReturned(t *testing.T) {
	broken := errors.New("broken")
	relay := peer.Relay{Name: "broken", Outbox: peer.Table{}, Deliver: func(context.Context, string, receiver.Destination) error { return broken }}
	_, err := drain{relay, receiver.Config{Kind: receiver.Nowhere}, 10, time.Minute}.run(t.Context(), server)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "broken")
}

// forgetful is an outbox whose publisher commits one transaction without its order.
type forgetful struct{ peer.Table }

func (f forgetful) Open(ctx context.Context, dsn string, clients int) (peer.Publisher, error) {
	bare, err := peer.Business{}.Open(ctx, dsn, clients)
	if err != nil {
		return nil, err
	}
	whole, err := f.Table.Open(ctx, dsn, clients)
	return forgetfulPublisher{whole, bare}, err
}

type forgetfulPublisher struct {
	peer.Publisher
	bare peer.Publisher
}

func (f forgetfulPublisher) Publish(ctx context.Context, number int) (time.Time, error) {
	if number == 3 {
		return f.bare.Publish(ctx, number)
	}
	return f.Publisher.Publish(ctx, number)
}

func (f forgetfulPublisher) Close() error { return errors.Join(f.Publisher.Close(), f.bare.Close()) }

func TestTransactionsWithoutTheirOrderAreLosses(t *testing.T) {
	sizes := SmokeSizes()
	for name, test := range map[string]struct {
		outbox peer.Outbox
		lost   int
	}{"whole": {peer.Table{}, 0}, "one forgotten": {forgetful{}, 1}} {
		t.Run(name, func(t *testing.T) {
			sample, err := writers{outbox: test.outbox, sizes: sizes}.run(t.Context(), server)
			require.NoError(t, err)
			require.EqualValues(t, test.lost, sample.Check.Lost)
			require.Positive(t, sample.Metrics["published"])
		})
	}
}

func TestInvalidRunsAreSpoilt(t *testing.T) {
	t.Parallel()
	metrics := func(key string, value float64) map[string]float64 {
		m := map[string]float64{samplesKey: 1000, othersKey: 0.05, "seconds": 2}
		m[key] = value
		return m
	}
	for want, m := range map[string]map[string]float64{
		"":                               metrics(othersKey, 0.19),
		"other processes had 0.40 cores": metrics(othersKey, 0.4),
		"the hypervisor kept 1.00 cores": metrics(stolenKey, 1),
		"only 19 samples":                metrics(samplesKey, 19),
	} {
		require.Equal(t, want, Sample{Metrics: m}.Spoilt(2, 0.1))
	}
	short := metrics(othersKey, 0.4)
	short["seconds"] = 0.1
	require.Empty(t, Sample{Metrics: short}.Spoilt(2, 0.1), "the error of counting is larger in a short run")
}

func TestOtherProcessesCountAsOthersAndLoopsDoNot(t *testing.T) {
	busy, err := startLoops(1)
	require.NoError(t, err)
	m := newMeter(t.Context(), server)
	before := machine.CPU(busy.ids()...)
	require.Eventually(t, func() bool { return machine.CPU(busy.ids()...) > before+300*time.Millisecond }, time.Minute, 10*time.Millisecond)
	took, metrics := m.stop(t.Context(), 1)
	seen, known := metrics[othersKey]
	if !known {
		t.Skip("no /proc")
	}
	require.Greater(t, seen, 0.3/took.Seconds()/2)
	require.Less(t, metrics["cpu"], 0.3/took.Seconds())
	m = newMeter(context.WithValue(t.Context(), loopsKey{}, busy.ids()), server)
	require.Eventually(t, func() bool { return m.read(t.Context()).loops > m.before.loops }, time.Minute, 10*time.Millisecond, "the loops are counted separately")
	require.NoError(t, busy.stop())
}
