package tables

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// Presence is what the row of a forwarder says about its session; see store.Presence. ID is never used
// again, so that a row that still names it was not changed in between.
type Presence struct {
	Owner, ID string
	// Alive is the condition that the server still lives the life in which the session was opened: in
	// another one all sessions are new, and a standby may lack the last writes of this row.
	Alive Expr
	run   *Runner
	// requested: a Declare has written the request, so there is a row from then on, unless it is evicted.
	requested bool
}

// NewPresence returns the presence of a session.
func (t *Tables) NewPresence(owner, id string, alive Expr) Presence {
	return Presence{Owner: owner, ID: id, Alive: alive, run: t.run}
}

// A presence is requested in the row before it is declared there, and is declared only where it still is requested: a
// statement whose client has given up may run later, and must not replace what was withdrawn, or another presence. No ID
// begins with either sign: one of MariaDB begins in base64.
func (p *Presence) request() string   { return "?" + p.ID }
func (p *Presence) withdrawn() string { return "-" + p.ID }

// Declare implements store.Presence.
func (p *Presence) Declare(ctx context.Context) (declared bool, err error) {
	defer p.run.Tried(&err, "declare the presence of forwarder %s", p.Owner)
	n, err := p.run.Write(ctx, failpoint.Declaration, `UPDATE {forwarders} SET presence = ? WHERE owner = ? AND presence <> ?`, p.request(), p.Owner, p.withdrawn())
	p.requested = p.requested || n > 0
	if err != nil || !p.requested {
		return false, err
	}
	n, err = p.run.Write(ctx, failpoint.Declaration, `UPDATE {forwarders} SET presence = ? WHERE owner = ? AND presence = ? AND ?`, p.ID, p.Owner, p.request(), p.Alive)
	return n > 0, err
}

// Withdraw implements store.Presence. An eviction has removed the row; if a heartbeat has made it again, it names nothing.
func (p *Presence) Withdraw(ctx context.Context) (held bool, err error) {
	defer p.run.Tried(&err, "withdraw the presence of forwarder %s", p.Owner)
	if !p.requested {
		return true, nil
	}
	n, err := p.run.Write(ctx, failpoint.Withdrawal, `UPDATE {forwarders} SET presence = ? WHERE owner = ? AND (presence = ? OR presence = ?)`,
		p.withdrawn(), p.Owner, p.ID, p.request())
	if err != nil || n > 0 {
		return n > 0, err
	}
	var says string
	err = p.run.Row(ctx, p.run.Own(), `SELECT presence FROM {forwarders} WHERE owner = ? {whole forwarders}`, p.Owner).Scan(&says)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return says == p.withdrawn(), err
}

// Evict implements store.Presence. The row of the forwarder decides between it and Withdraw: the later one
// waits for the other, and finds the row changed.
func (p *Presence) Evict(ctx context.Context, other store.Gone) (evicted bool, err error) {
	defer p.run.Tried(&err, "evict forwarder %s", other.Owner)
	if _, err := p.run.Write(ctx, failpoint.Leave, `?`, p.run.depart(other.Owner)); err != nil {
		return false, err
	}
	err = inTx(ctx, p.run.Own(), failpoint.Eviction, func(tx *sql.Tx) error {
		n, err := p.run.Exec(ctx, tx, `?`, p.run.Dialect.Brief(SQL(`DELETE FROM {forwarders} WHERE owner = ? AND presence = ? AND ?`, other.Owner, other.Presence, p.Alive)))
		if err != nil || n == 0 {
			return err
		}
		evicted = true
		_, err = p.run.Exec(ctx, tx, `?`, p.run.Dialect.Announce(SQL(`UPDATE {cursors} SET owner = NULL, lease_until = NULL, updated_at = {now} WHERE owner = ?`, other.Owner)))
		return err
	})
	return evicted && err == nil, err
}
