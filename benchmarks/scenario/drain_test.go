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

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

var server *database.Server

func TestMain(m *testing.M) {
	child.Main()
	var err error
	server, err = database.Start(context.Background(), "", false)
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

// careless is a relay whose author forgot something: it delivers what deliver makes
// of the rows, and deletes those for which settled says so.
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

func TestDrainsSeeWhatARelayGetsWrong(t *testing.T) {
	const backlog = 2500
	whole := func(p [][]byte) [][]byte { return p }
	for name, test := range map[string]struct {
		relay peer.Relay
		want  Sample
	}{
		"nothing":         {careless(whole, "true"), Sample{Complete: true}},
		"one lost":        {careless(func(p [][]byte) [][]byte { return p[1:] }, "true"), Sample{Lost: 1}},
		"one left":        {careless(func(p [][]byte) [][]byte { return p[1:] }, "id > 1"), Sample{}},
		"one repeated":    {careless(func(p [][]byte) [][]byte { return append(p[:1:1], p...) }, "true"), Sample{Complete: true, Repeats: 1}},
		"one not settled": {careless(whole, "id > 1"), Sample{Complete: true, Unsettled: 1}},
		"out of order": {
			careless(func(p [][]byte) [][]byte { p[3], p[2003] = p[2003], p[3]; return p }, "true"),
			Sample{Complete: true, Swapped: 2}, // 1003 and 3 come behind 2003
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := drain{test.relay, receiver.Config{Kind: receiver.Nowhere}, backlog, 3 * time.Second}
			got, err := d.run(t.Context(), server)
			require.NoError(t, err)
			require.Positive(t, got.Metrics["rate"])
			got.Metrics = nil
			require.Equal(t, test.want, got)
		})
	}
}

func TestWhatARelayReturnsIsTold(t *testing.T) {
	broken := errors.New("broken")
	relay := peer.Relay{Name: "broken", Outbox: peer.Table{}, Deliver: func(context.Context, string, receiver.Destination) error { return broken }}
	_, err := drain{relay, receiver.Config{Kind: receiver.Nowhere}, 10, time.Minute}.run(t.Context(), server)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "broken")
}

// forgetful is an outbox whose publisher commits without the order now and then.
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
			sample, err := writers{test.outbox, sizes}.run(t.Context(), server)
			require.NoError(t, err)
			require.Equal(t, test.lost, sample.Lost)
			require.Greater(t, sample.Metrics["published"]*sizes.Publishing.Seconds(), 4.0)
		})
	}
}
