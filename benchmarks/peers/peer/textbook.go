package peer

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
)

// textbookPoll is how long the relay sleeps when no order is unsent.
const textbookPoll = 100 * time.Millisecond

// Textbook is the relay of the well-known articles: it selects all unsent orders, and publishes and
// marks one after the other.
func Textbook() Relay {
	return Relay{
		Name:          "Textbook outbox",
		Configuration: "SELECT all unsent ORDER BY id; publish one; UPDATE it as sent; prepared statements, a partial index on unsent rows, a poll every " + textbookPoll.String() + "; Kafka through a " + SaramaText + "; " + HTTPText,
		Outbox:        Table{},
		Deliver:       deliverTextbook,
	}
}

func deliverTextbook(ctx context.Context, dsn string, to receiver.Destination) error {
	return relayRows(dsn, to, func(db *sql.DB, out sender) error {
		mark, err := db.PrepareContext(ctx, `UPDATE messages SET sent_at = now() WHERE id = $1`)
		if err != nil {
			return orderly(ctx, err)
		}
		defer mark.Close()
		for {
			rows, err := db.QueryContext(ctx, `SELECT id, key, payload FROM messages WHERE sent_at IS NULL ORDER BY id`)
			if err != nil {
				return orderly(ctx, err)
			}
			unsent, err := scanItems(rows)
			if err != nil {
				return orderly(ctx, err)
			}
			for _, i := range unsent {
				if ctx.Err() != nil {
					return nil
				}
				if err := sendAndMark(context.WithoutCancel(ctx), out, mark, i); err != nil {
					return err
				}
			}
			if len(unsent) == 0 && !pause(ctx, textbookPoll) {
				return nil
			}
		}
	})
}

// sendAndMark delivers an order and marks it as sent. Its context must not end when the relay stops,
// or the order could be delivered without the mark.
func sendAndMark(ctx context.Context, out sender, mark *sql.Stmt, i item) error {
	if err := out.send(ctx, i); err != nil {
		return err
	}
	_, err := mark.ExecContext(ctx, i.id)
	return err
}

// pause waits for d. It returns false if ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
