package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// If the lane has a ledger, each checkpoint ends a round. The round is first committed in the
// destination, with a note of what it delivered, and then written in the database as usual,
// during the next round. The next round is committed only after that is written, so the
// newest note names everything that is delivered and may not be written.

// round is the state of a checkpointer with a ledger.
type round struct {
	owed       []memory.Noted // as of the last take
	noted      int            // how many of owed are in the newest note
	commitTook time.Duration  // duration of the last commit
}

const (
	// A round lasts roundTimes as long as the last commit, within these bounds, unless there is
	// nothing more to deliver.
	roundTimes = 4
	leastRound = 25 * time.Millisecond
	mostRound  = 500 * time.Millisecond
)

// Recover reads the newest note of a ledger, and returns what it names as delivered and the
// cursor may not know. If the note does not belong to these cursors, stale says why.
func Recover(lease store.Lease, newest []byte) (owed memory.Owed, stale string, err error) {
	if newest == nil {
		return nil, "", nil
	}
	note, err := memory.DecodeNote(newest)
	switch {
	case err != nil:
		return nil, "", err
	case note.Epoch >= lease.Epoch:
		return nil, fmt.Sprintf("it was written under lease %d of the lane, and the lease of this forwarder is number %d, which must be higher: the cursors were created again, the database was set back, or another outbox has a sink with this name",
			note.Epoch, lease.Epoch), nil
	case note.Of != lease.Lane.Of:
		return nil, fmt.Sprintf("it belongs to one of %d lanes, but this is one of %d", note.Of, lease.Lane.Of), nil
	case note.Number > lease.Checkpoint: // otherwise it is written
		return memory.NewOwed(note.Owed, note.Made), "", nil
	}
	return memory.NewOwed(note.Owed), "", nil
}

// Behind returns how many checkpoints that were written, as the note shows, the cursor lacks.
func Behind(lease store.Lease, newest []byte) int64 {
	note, err := memory.DecodeNote(newest)
	if err != nil || note.Epoch >= lease.Epoch || note.Of != lease.Lane.Of {
		return 0
	}
	return max(0, note.Number-1-lease.Checkpoint)
}

// Begin writes a note of what is owed under this lease. It is called after Restore, which has
// renewed the lease: it must not replace a later note of another forwarder.
func (c *Checkpointer) Begin(ctx context.Context, owed memory.Owed) error {
	c.owed = owed.List()
	return c.commit(ctx, nil)
}

// endRound waits until the round ends, and renews the lease meanwhile.
func (c *Checkpointer) endRound(ctx context.Context) error {
	most := min(max(leastRound, roundTimes*c.commitTook), mostRound)
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

// commitRound commits what settlements have delivered, and lets the next round begin. It commits
// nothing if the destination already knows everything.
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
	if err := failpoint.Ledger.Do(func() error { return c.Ledger.Commit(ctx, raw) }); err != nil {
		if class, _ := sinks.Classify(err); class == sinks.ClassUnavailable {
			c.Lane.Unavailable(err)
		}
		return errors.Join(sinks.ErrAborted, err)
	}
	c.commitTook, c.noted = time.Since(began), len(c.owed)
	return nil
}
