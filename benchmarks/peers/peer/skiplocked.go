package peer

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
)

const (
	skipLockedBatch = 1000
	skipLockedPoll  = 10 * time.Millisecond
)

// SkipLocked is a typical home-made relay: it locks a batch of rows that no other worker has locked,
// delivers them, deletes them and commits.
func SkipLocked() Relay {
	return Relay{
		Name: "Home-made SKIP LOCKED",
		Configuration: fmt.Sprintf("SELECT … ORDER BY id LIMIT %d FOR UPDATE SKIP LOCKED; deliver the batch, all at once to Kafka, as many as may be in flight to HTTP; DELETE; commit; a poll every %s; Kafka through a %s; %s",
			skipLockedBatch, skipLockedPoll, SaramaText, HTTPText),
		Outbox:  Table{},
		Deliver: deliverSkipLocked,
	}
}

func deliverSkipLocked(ctx context.Context, dsn string, to receiver.Destination) error {
	return relayTurns(ctx, dsn, to, skipLockedTurn, skipLockedBatch, skipLockedPoll)
}

// relayTurns delivers batch after batch. After a batch that is not full it waits.
func relayTurns(ctx context.Context, dsn string, to receiver.Destination,
	turn func(ctx context.Context, db *sql.DB, out sender) (n int, err error), full int, poll time.Duration,
) error {
	return relayRows(dsn, to, func(db *sql.DB, out sender) error {
		for ctx.Err() == nil {
			n, err := turn(context.WithoutCancel(ctx), db, out)
			if err != nil {
				return err
			}
			if n < full && !pause(ctx, poll) {
				return nil
			}
		}
		return nil
	})
}

// skipLockedTurn delivers one batch in one transaction.
func skipLockedTurn(ctx context.Context, db *sql.DB, out sender) (n int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT id, key, payload FROM messages ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`, skipLockedBatch)
	if err != nil {
		return 0, err
	}
	batch, err := scanItems(rows)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	if err := out.send(ctx, batch...); err != nil {
		return 0, err
	}
	ids := make(pq.Int64Array, len(batch))
	for i, item := range batch {
		ids[i] = item.id
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM messages WHERE id = ANY($1)`, ids); err != nil {
		return 0, err
	}
	return len(batch), tx.Commit()
}
