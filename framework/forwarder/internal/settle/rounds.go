package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Where the lane has a ledger each checkpoint ends a round. It is committed in the destination first, with a
// note of what was delivered in it, and then written in the database as ever, while the next round
// goes on. The next round is committed only once that is written: so the newest note names all
// that is delivered and may not be written.

// round is what a checkpointer has for that.
type round struct {
	owed  []memory.Noted // as of the last take
	noted int            // how many of owed the newest note has
	took  time.Duration  // the last commit
}

const (
	// A round lasts so many times as long as its commit took, within these bounds, unless
	// there is nothing to deliver any more.
	roundTimes = 4
	leastRound = 25 * time.Millisecond
	mostRound  = 500 * time.Millisecond
)

// Recover reads the newest note of a ledger, and returns what it names as delivered and the lease's
// cursor may not know. stale says why it names nothing of these cursors, if there is a note.
func Recover(lease store.Lease, newest []byte) (owed memory.Owed, stale string, err error) {
	if newest == nil {
		return nil, "", nil
	}
	note, err := memory.DecodeNote(newest)
	switch {
	case err != nil:
		return nil, "", err
	case note.Epoch >= lease.Epoch:
		return nil, fmt.Sprintf("it was written under lease %d, and this is lease %d: the cursors were made anew, the database was set back, or another outbox has a sink of this name",
			note.Epoch, lease.Epoch), nil
	case note.Of != lease.Lane.Of:
		return nil, fmt.Sprintf("it is of one of %d lanes, and this is one of %d", note.Of, lease.Lane.Of), nil
	case note.Number > lease.Checkpoint: // else it is written
		return memory.NewOwed(note.Owed, note.Made), "", nil
	}
	return memory.NewOwed(note.Owed), "", nil
}

// Behind is by how many checkpoints a cursor is behind what a note says was written; 0: it is not.
func Behind(lease store.Lease, newest []byte) int64 {
	note, err := memory.DecodeNote(newest)
	if err != nil || note.Epoch >= lease.Epoch || note.Of != lease.Lane.Of {
		return 0
	}
	return max(0, note.Number-1-lease.Checkpoint)
}

// Begin notes what is owed under this lease. It is called behind Restore, which has renewed the lease: what
// another forwarder noted meanwhile must not be replaced.
func (c *Checkpointer) Begin(ctx context.Context, owed memory.Owed) error {
	c.owed = owed.List()
	return c.commit(ctx, nil)
}

// endRound lets the round go on for as long as it is worth, and waits for its end. It renews the
// lease meanwhile.
func (c *Checkpointer) endRound(ctx context.Context) error {
	most := min(max(leastRound, roundTimes*c.round.took), mostRound)
	for !c.Lane.EndRound(most, c.TTL/3) {
		most = 0
		switch err := c.Renew(ctx); {
		case err == nil:
		case Lost(err), ctx.Err() != nil:
			return err
		case time.Since(c.renewed) > c.TTL:
			return fmt.Errorf("%w: %w", dispatch.ErrLeaseExpired, err)
		}
	}
	return nil
}

// commitRound commits what settlements have delivered, and lets the next round begin. Where there is
// nothing that the destination does not know it commits nothing.
func (c *Checkpointer) commitRound(ctx context.Context, settled []dispatch.Settlement) error {
	var made []memory.Noted
	for i := range settled {
		if settled[i].Delivered {
			made = append(made, settled[i].Noted())
		}
	}
	if len(made) > 0 || len(c.owed) != c.noted {
		if err := c.commit(ctx, made); err != nil {
			return err
		}
		if c.Committed != nil {
			c.Committed()
		}
	}
	c.Lane.Continue()
	return nil
}

func (c *Checkpointer) commit(ctx context.Context, made []memory.Noted) error {
	note := memory.Note{Epoch: c.Lease.Epoch, Of: c.Lease.Lane.Of, Number: c.number, Made: made, Owed: slices.Clone(c.owed)}
	raw, err := note.Encode()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.Ledger.Commit(ctx, raw); err != nil {
		if class, _ := sinks.Classify(err); class == sinks.ClassUnavailable {
			c.Lane.Unavailable(err)
		}
		return errors.Join(sinks.ErrAborted, err)
	}
	c.round.took, c.noted = time.Since(began), len(c.owed)
	return nil
}
