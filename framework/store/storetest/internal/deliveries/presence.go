package deliveries

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

var presenceFacts = []kit.Fact{
	{"a presence is gone once its session has ended", presenceGone},
	{"a forwarder that is evicted has no lease and is no member", presenceEvicted},
	{"a forwarder whose presence was withdrawn is not evicted", presenceWithdrawn},
	{"a withdrawal after the eviction says so, whatever a heartbeat has written since", presenceLate},
	{"a declaration that had no effect is no eviction", presenceWithoutEffect},
	{"a presence is declared in an existing row, and another one replaces it", presenceDeclared},
}

// openPresence opens the presence of a forwarder, unless the store has none.
func openPresence(t *testing.T, o *kit.Outbox, owner string) store.Presence {
	t.Helper()
	opener, can := o.Store.(store.Presences)
	if !can {
		t.Skip("this store has no presence")
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := opener.OpenPresence(ctx, owner)
	if errors.Is(err, store.ErrNoPresence) {
		cancel()
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); _ = p.Close() })
	return p
}

// attend opens the presence of a forwarder with a lease of one of two lanes, and declares it.
func attend(t *testing.T, o *kit.Outbox, owner string, lane int) (store.Presence, store.Lease) {
	t.Helper()
	p := openPresence(t, o, owner)
	require.NoError(t, o.Heartbeat(t.Context(), store.Member{Owner: owner, Sinks: []string{"mail"}}, time.Hour))
	declare(t, o, p, true)
	return p, o.HoldLane(t, store.Lanes("mail", 2)[lane], owner)
}

func declare(t *testing.T, o *kit.Outbox, p store.Presence, wanted bool) {
	t.Helper()
	declared := false
	require.NoError(t, o.Repeat(func() (err error) { declared, err = p.Declare(t.Context()); return err }))
	require.Equal(t, wanted, declared)
}

func withdraw(t *testing.T, o *kit.Outbox, p store.Presence, wanted bool) {
	t.Helper()
	held := false
	require.NoError(t, o.Repeat(func() (err error) { held, err = p.Withdraw(t.Context()); return err }))
	require.Equal(t, wanted, held)
}

func evict(t *testing.T, o *kit.Outbox, p store.Presence, other store.Gone, wanted bool) {
	t.Helper()
	evicted := false
	require.NoError(t, o.Repeat(func() (err error) { evicted, err = p.Evict(t.Context(), other); return err }))
	require.Equal(t, wanted, evicted)
}

func gone(t *testing.T, p store.Presence) []store.Gone {
	t.Helper()
	gone, err := p.Beat(t.Context())
	require.NoError(t, err)
	return gone
}

// end ends a session, and waits until the other forwarder sees that.
func end(t *testing.T, ended, other store.Presence) store.Gone {
	t.Helper()
	_ = ended.Close()
	var seen []store.Gone
	eventually(t, func() bool { seen = gone(t, other); return len(seen) > 0 }, "the session has ended")
	require.Len(t, seen, 1)
	return seen[0]
}

func presenceGone(t *testing.T, o *kit.Outbox) {
	first, _ := attend(t, o, "w1", 0)
	second, _ := attend(t, o, "w2", 1)
	require.Empty(t, gone(t, first))
	require.Empty(t, gone(t, second))
	require.Equal(t, "w1", end(t, first, second).Owner)
	_, err := first.Beat(t.Context())
	require.Error(t, err)
}

func presenceEvicted(t *testing.T, o *kit.Outbox) {
	first, lease := attend(t, o, "w1", 0)
	second, kept := attend(t, o, "w2", 1)
	ended := end(t, first, second)
	_, err := o.Acquire(t.Context(), lease.Lane, "w2", time.Hour)
	require.ErrorIs(t, err, store.ErrLeaseHeld, "until then")
	evict(t, o, second, ended, true)
	evict(t, o, second, ended, false)
	require.Empty(t, gone(t, second))
	members := o.Members(t).Members
	require.Len(t, members, 1)
	require.Equal(t, "w2", members[0].Owner)
	departed, err := o.Departed(t.Context())
	require.NoError(t, err)
	require.Len(t, departed, 1)
	require.Equal(t, "w1", departed[0].Owner)
	require.ErrorIs(t, o.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour}), store.ErrLeaseLost)
	require.Equal(t, lease.Epoch+1, o.HoldLane(t, lease.Lane, "w2").Epoch)
	o.Write(t, kept, func(*store.Checkpoint) {})
}

func presenceWithdrawn(t *testing.T, o *kit.Outbox) {
	first, lease := attend(t, o, "w1", 0)
	second, _ := attend(t, o, "w2", 1)
	ended := end(t, first, second)
	withdraw(t, o, first, true)
	withdraw(t, o, first, true)
	declare(t, o, first, false) // a late one, whose client has given up
	require.Empty(t, gone(t, second))
	evict(t, o, second, ended, false)
	o.Write(t, lease, func(*store.Checkpoint) {})
	require.Len(t, o.Members(t).Members, 2)
}

func presenceLate(t *testing.T, o *kit.Outbox) {
	first, _ := attend(t, o, "w1", 0)
	second, _ := attend(t, o, "w2", 1)
	evict(t, o, second, end(t, first, second), true)
	withdraw(t, o, first, false)
	require.NoError(t, o.Heartbeat(t.Context(), store.Member{Owner: "w1"}, time.Hour))
	withdraw(t, o, first, false)
	withdraw(t, o, first, false)
}

func presenceWithoutEffect(t *testing.T, o *kit.Outbox) {
	first, _ := attend(t, o, "w1", 0)
	withdraw(t, o, first, true)
	p, tx := openPresence(t, o, "w1"), o.Tx(t)
	_, err := tx.ExecContext(t.Context(), `UPDATE outbox_forwarders SET sinks = sinks WHERE owner = 'w1'`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = p.Declare(ctx)
	require.Error(t, err, "the row is locked")
	require.NoError(t, tx.Rollback())
	withdraw(t, o, p, true)
}

func presenceDeclared(t *testing.T, o *kit.Outbox) {
	p := openPresence(t, o, "w1")
	declare(t, o, p, false)
	_, lease := attend(t, o, "w1", 0)
	declare(t, o, p, true)
	require.NoError(t, o.Heartbeat(t.Context(), store.Member{Owner: "w1"}, time.Hour))
	second, _ := attend(t, o, "w2", 1)
	ended := end(t, p, second)
	again := openPresence(t, o, "w1")
	declare(t, o, again, true)
	require.Empty(t, gone(t, second))
	evict(t, o, second, ended, false)
	o.Write(t, lease, func(*store.Checkpoint) {})
}
