package deliveries

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var checkpointFacts = []kit.Fact{
	{"the next lease continues at the checkpoint", cursorMoves},
	{"the next lease has the settled offsets", settledOffsets},
	{"without a position the cursor does not move", renewal},
	{"a checkpoint renews the lease", renewedLease},
	{"with a stale epoch it changes nothing", staleEpoch},
	{"after a release it changes nothing", releasedCheckpoint},
	{"a repeated one changes nothing more", repeatedCheckpoint},
	{"one with a number is written once", numberedCheckpoint},
	{"the next lease continues the numbers", numbersGoOn},
	{"what InTx writes is committed with it", inTxCommits},
	{"an error of InTx rolls everything back", inTxRollsBack},
	{"a transaction that InTx has ended is InTx's fault", inTxSpoils},
	{"cancelling the context during it rolls everything back", cancelledCheckpoint},
	{"it takes thousands of rows", largeCheckpoint},
	{"receipts are archived", receipts},
}

// pageOf publishes rows and returns them as a page.
func pageOf(t *testing.T, o *kit.Outbox, rows ...notification.Envelope) store.Page {
	t.Helper()
	_, end := o.Read(t, nil, kit.All, 1000)
	o.Publish(t, rows...)
	page := kit.NextPage(t, o.Reader(t, end, kit.All), o.Target(t), len(rows))
	require.Len(t, page.Envelopes, len(rows))
	return page
}

// takeOver expires the lease of a sink's lane and leases it to another owner.
func takeOver(t *testing.T, o *kit.Outbox, sink string) store.Lease {
	t.Helper()
	expireLeases(t, o)
	return o.HoldLane(t, kit.Lane(sink), "w2")
}

func cursorMoves(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(5)...)
	lease := o.Hold(t, "mail")
	for i := range page.Envelopes {
		o.Write(t, lease, func(c *store.Checkpoint) { c.Position = page.After(i) })
		require.NoError(t, o.Release(t.Context(), lease))
		lease = o.Hold(t, "mail")
		got, _ := o.Read(t, lease.Position, kit.All, 2)
		require.Equal(t, kit.IDs(page.Envelopes[i+1:]), kit.IDs(got))
	}
}

func settledOffsets(t *testing.T, o *kit.Outbox) {
	start := pageOf(t, o, kit.Several(1)...).End
	lease := o.Hold(t, "mail")
	for _, settled := range [][]store.OffsetRange{store.OffsetRanges(5, 6, 7, 9, 1<<40), store.OffsetRanges(8), nil} {
		o.Write(t, lease, func(c *store.Checkpoint) { c.Position, c.Settled = start, settled })
		require.NoError(t, o.Release(t.Context(), lease))
		lease = o.Hold(t, "mail")
		require.Equal(t, settled, lease.Settled)
	}
}

func renewal(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(3)...)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(*store.Checkpoint) {})
	require.Nil(t, takeOver(t, o, "mail").Position, "nothing is settled yet")

	expireLeases(t, o)
	lease = o.Hold(t, "mail")
	settled := store.OffsetRanges(page.Envelopes[2].Offset)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Position, c.Settled = page.After(0), settled })
	o.Write(t, lease, func(*store.Checkpoint) {})
	next := takeOver(t, o, "mail")
	require.Equal(t, settled, next.Settled)
	got, _ := o.Read(t, next.Position, kit.All, 10)
	require.Equal(t, kit.IDs(page.Envelopes[1:]), kit.IDs(got))
}

func renewedLease(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	expireLeases(t, o)
	o.Write(t, lease, func(*store.Checkpoint) {}) // no other owner has taken the lane
	_, err := o.Acquire(t.Context(), kit.Lane("mail"), "w2", time.Hour)
	require.ErrorIs(t, err, store.ErrLeaseHeld)
	require.WithinDuration(t, time.Now().Add(time.Hour), o.Report(t).Cursors[0].LeaseUntil, time.Minute)
}

// everything returns a checkpoint that writes something of each kind. It counts calls of InTx.
func everything(lease store.Lease, page store.Page, calls *int) store.Checkpoint {
	e := page.Envelopes
	return store.Checkpoint{
		Lease:    lease,
		TTL:      time.Minute,
		Position: page.After(0),
		Settled:  store.OffsetRanges(e[2].Offset),
		Park:     []store.Parked{{Envelope: e[1], State: store.StateRetrying, Attempt: 2, DueAt: kit.Moment, LastError: "no", FirstParkedAt: kit.Moment}},
		Unpark:   []store.Ref{store.RefOf(&e[0])},
		Receipts: []store.Receipt{{Offset: e[2].Offset, ID: e[2].ID, Receipt: "http 202", Attempt: 1, DeliveredAt: kit.Moment}},
		InTx: func(context.Context, *sql.Tx) error {
			*calls++
			return nil
		},
	}
}

// withParked publishes four rows, parks the first one and returns the lease of its lane.
func withParked(t *testing.T, o *kit.Outbox) (store.Lease, store.Page) {
	t.Helper()
	page := pageOf(t, o, kit.Several(4)...)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{{Envelope: page.Envelopes[0], State: store.StateDead, FirstParkedAt: kit.Moment}}
	})
	return lease, page
}

func staleEpoch(t *testing.T, o *kit.Outbox) {
	stale, page := withParked(t, o)
	expireLeases(t, o)
	o.Hold(t, "mail") // the same owner, but a later epoch
	before := o.DumpAll(t)

	calls := 0
	require.ErrorIs(t, o.Checkpoint(t.Context(), everything(stale, page, &calls)), store.ErrLeaseLost)
	require.Equal(t, before, o.DumpAll(t))
	require.Zero(t, calls)

	// The smallest checkpoint is refused too.
	require.ErrorIs(t, o.Checkpoint(t.Context(), store.Checkpoint{Lease: stale, TTL: time.Hour, Position: page.End}), store.ErrLeaseLost)
	require.Equal(t, before, o.DumpAll(t))
}

func releasedCheckpoint(t *testing.T, o *kit.Outbox) {
	lease, page := withParked(t, o)
	require.NoError(t, o.Release(t.Context(), lease))
	before, calls := o.DumpAll(t), 0
	require.ErrorIs(t, o.Checkpoint(t.Context(), everything(lease, page, &calls)), store.ErrLeaseLost)
	require.Equal(t, before, o.DumpAll(t))
}

func repeatedCheckpoint(t *testing.T, o *kit.Outbox) {
	lease, page := withParked(t, o)
	calls := 0
	require.NoError(t, o.Checkpoint(t.Context(), everything(lease, page, &calls)))
	before := o.DumpAll(t, "lease_until", "updated_at")
	require.Contains(t, before, "http 202")
	require.Contains(t, before, "retrying")
	require.NotContains(t, before, "dead")

	require.NoError(t, o.Checkpoint(t.Context(), everything(lease, page, &calls)))
	require.Equal(t, before, o.DumpAll(t, "lease_until", "updated_at"))
	require.Equal(t, 2, calls)
}

func inTxCommits(t *testing.T, o *kit.Outbox) {
	o.Exec(t, `CREATE TABLE sent (id integer)`)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.InTx = func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES (7)`)
			return err
		}
	})
	require.Equal(t, "id=7 \n", o.Dump(t, `SELECT id FROM sent`))
}

func inTxRollsBack(t *testing.T, o *kit.Outbox) {
	o.Exec(t, `CREATE TABLE sent (id integer)`)
	lease, page := withParked(t, o)
	before, calls := o.DumpAll(t), 0
	c := everything(lease, page, &calls)
	no := errors.New("refused by the hook")
	c.InTx = func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES (7)`); err != nil {
			return err
		}
		return no
	}
	require.ErrorIs(t, o.Checkpoint(t.Context(), c), no)
	require.Equal(t, before, o.DumpAll(t))
	require.Empty(t, o.Dump(t, `SELECT id FROM sent`))

	c.InTx = nil
	require.NoError(t, o.Checkpoint(t.Context(), c), "the lease is still held")
}

func inTxSpoils(t *testing.T, o *kit.Outbox) {
	lease, page := withParked(t, o)
	before, calls := o.DumpAll(t), 0
	c := everything(lease, page, &calls)
	c.InTx = func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }
	require.ErrorIs(t, o.Checkpoint(t.Context(), c), store.ErrSpoiled)
	require.Equal(t, before, o.DumpAll(t))
}

func cancelledCheckpoint(t *testing.T, o *kit.Outbox) {
	lease, page := withParked(t, o)
	before, calls := o.DumpAll(t), 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := everything(lease, page, &calls)
	c.InTx = func(ctx context.Context, _ *sql.Tx) error {
		cancel()
		return ctx.Err()
	}
	require.ErrorIs(t, o.Checkpoint(ctx, c), context.Canceled)
	require.Equal(t, before, o.DumpAll(t))
	c.InTx = nil
	require.NoError(t, o.Checkpoint(t.Context(), c))
}

func largeCheckpoint(t *testing.T, o *kit.Outbox) {
	const n = 5000
	lease := o.Hold(t, "mail")
	c := store.Checkpoint{Lease: lease, TTL: time.Hour, Position: pageOf(t, o, kit.Several(1)...).End}
	var unpark []store.Ref
	for i := range int64(n) {
		e := kit.Envelope("a", "")
		e.Offset = i + 1
		unpark = append(unpark, store.RefOf(&e))
		c.Park = append(c.Park, store.Parked{Envelope: e, State: store.StateDead, FirstParkedAt: kit.Moment})
		c.Receipts = append(c.Receipts, store.Receipt{Offset: i + 1, ID: e.ID, DeliveredAt: kit.Moment})
		c.Settled = append(c.Settled, store.OffsetRange{First: 2*i + 1, Last: 2*i + 1})
	}
	require.NoError(t, o.Checkpoint(t.Context(), c))
	require.Equal(t, fmt.Sprintf("n=%d \n", n), o.Dump(t, `SELECT count(*) AS n FROM outbox_parked`))
	require.Equal(t, fmt.Sprintf("n=%d \n", n), o.Dump(t, `SELECT count(*) AS n FROM outbox_receipts`))
	require.Equal(t, c.Settled, takeOver(t, o, "mail").Settled)

	expireLeases(t, o)
	lease = o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Unpark = unpark[:n-1]
	})
	require.Equal(t, fmt.Sprintf("offset=%d \n", n), o.Dump(t, `SELECT {offset} FROM outbox_parked`))
}

func receipts(t *testing.T, o *kit.Outbox) {
	require.True(t, o.KeepsReceipts())
	lease := o.Hold(t, "mail")
	r := store.Receipt{Offset: 7, ID: "x", Receipt: notification.Receipt("smtp 250 'queued' as 7F3"), Attempt: 3, DeliveredAt: kit.Moment}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Receipts = []store.Receipt{r} })
	const query = `SELECT sink, {offset}, id, receipt, attempt FROM outbox_receipts`
	want := "sink=mail offset=7 id=x receipt=smtp 250 'queued' as 7F3 attempt=3 \n"
	require.Equal(t, want, o.Dump(t, query))

	// A delivery that a crash repeats keeps its first receipt.
	r.Receipt, r.Attempt = "again", 4
	o.Write(t, lease, func(c *store.Checkpoint) { c.Receipts = []store.Receipt{r} })
	require.Equal(t, want, o.Dump(t, query))
}

func numberedCheckpoint(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(2)...)
	lease := o.Hold(t, "mail")
	runs := 0
	write := func(number int64, position store.Position) {
		o.Write(t, lease, func(c *store.Checkpoint) {
			c.Number, c.Position = number, position
			c.InTx = func(context.Context, *sql.Tx) error { runs++; return nil }
		})
	}
	write(1, page.After(0))
	write(2, page.End)
	write(2, page.After(0)) // repeated because its answer was lost
	require.Equal(t, 2, runs)
	got, _ := o.Read(t, takeOver(t, o, "mail").Position, kit.All, 10)
	require.Empty(t, got, "the cursor stays where number 2 moved it")

	err := o.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 2})
	require.ErrorIs(t, err, store.ErrLeaseLost, "number 2 is written, but another owner has the lease")
}

func numbersGoOn(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(2)...)
	lease := o.Hold(t, "mail")
	require.Zero(t, lease.Checkpoint)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Number, c.Position = 7, page.After(0) })
	lease = takeOver(t, o, "mail")
	require.EqualValues(t, 7, lease.Checkpoint)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Number, c.Position = 8, page.End })
	require.NoError(t, o.Release(t.Context(), lease))
	got, _ := o.Read(t, o.Hold(t, "mail").Position, kit.All, 10)
	require.Empty(t, got)
}
