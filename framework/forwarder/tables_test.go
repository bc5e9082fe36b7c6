package forwarder_test

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// What tests read and change in the tables of an outbox, past the store.

// exec runs a statement for the test.
func (o *outbox) exec(query string, args ...any) {
	o.t.Helper()
	_, err := o.db.ExecContext(o.t.Context(), query, args...)
	require.NoError(o.t, err)
}

// value returns a value from the database.
func value[T any](o *outbox, query string) T {
	o.t.Helper()
	var v T
	require.NoError(o.t, o.db.QueryRowContext(o.t.Context(), query).Scan(&v))
	return v
}

// texts returns a column of the database.
func (o *outbox) texts(query string) (all []string) {
	o.t.Helper()
	rows, err := o.db.QueryContext(o.t.Context(), query)
	require.NoError(o.t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		require.NoError(o.t, rows.Scan(&text))
		all = append(all, text)
	}
	require.NoError(o.t, rows.Err())
	return all
}

// rows counts the rows of the log.
func (o *outbox) rows() int {
	o.t.Helper()
	return value[int](o, `SELECT count(*) FROM outbox`)
}

// receipts counts the receipts, each of a settled delivery.
func (o *outbox) receipts() int {
	o.t.Helper()
	return value[int](o, `SELECT count(*) FROM outbox_receipts`)
}

// parked returns the parked deliveries as "sink state id", in log order.
func (o *outbox) parked() []string {
	o.t.Helper()
	return o.texts(`SELECT sink || ' ' || state || ' ' || id FROM outbox_parked ORDER BY "offset", sink`)
}

// parkedOf returns a parked delivery of the usual sink.
func (o *outbox) parkedOf(id string) store.Parked {
	o.t.Helper()
	found, err := o.store.FindParked(o.t.Context(), store.ParkedFilter{Sink: "sink", ID: id}, store.ParkedPlace{}, 1)
	require.NoError(o.t, err)
	require.Len(o.t, found, 1, "%s is not parked", id)
	return found[0].Parked
}

// spent returns the number of attempts of all parked deliveries together.
func (o *outbox) spent() int {
	o.t.Helper()
	return value[int](o, `SELECT coalesce(sum(attempt), 0) FROM outbox_parked`)
}

// settled returns what the usual sink has settled out of order.
func (o *outbox) settled() string {
	o.t.Helper()
	return value[string](o, `SELECT settled FROM outbox_cursors WHERE sink = 'sink'`)
}

// unpark removes parked deliveries in a state.
func (o *outbox) unpark(s store.State) {
	o.t.Helper()
	o.exec(fmt.Sprintf(`DELETE FROM outbox_parked WHERE state = '%s'`, s))
}

// putBack makes parked deliveries in a state due at once, with all of their attempts.
func (o *outbox) putBack(s store.State) {
	o.t.Helper()
	o.exec(fmt.Sprintf(`UPDATE outbox_parked SET state = 'retrying', attempt = 0, due_at = '2000-01-01T00:00:00.000000Z' WHERE state = '%s'`, s))
}

// owners counts the lanes of each forwarder by the beginning of its name; "" stands for free lanes.
func (o *outbox) owners() map[string]int {
	o.t.Helper()
	roster, err := o.store.Membership(o.t.Context())
	require.NoError(o.t, err)
	owners := make(map[string]int)
	for _, l := range roster.Lanes {
		owners[l.Owner[:min(1, len(l.Owner))]]++
	}
	return owners
}

// expireLeases frees all lanes, as after the leases of a killed forwarder.
func (o *outbox) expireLeases() {
	o.t.Helper()
	o.exec(`UPDATE outbox_cursors SET owner = NULL, lease_until = NULL WHERE owner IS NOT NULL`)
}

// loseLeases is expireLeases after which it looks as if another forwarder had the lanes.
func (o *outbox) loseLeases() {
	o.t.Helper()
	o.exec(`UPDATE outbox_cursors SET owner = NULL, lease_until = NULL, epoch = epoch + 1 WHERE owner IS NOT NULL`)
}

// giveLeases gives all lanes of a sink to another forwarder.
func (o *outbox) giveLeases(sink string) {
	o.t.Helper()
	o.exec(fmt.Sprintf(`UPDATE outbox_cursors SET owner = 'another', epoch = epoch + 1 WHERE sink = '%s'`, sink))
}

// pause pauses a sink, or lets it continue.
func (o *outbox) pause(sink string, paused bool) {
	o.t.Helper()
	o.exec(fmt.Sprintf(`UPDATE outbox_cursors SET paused = %t WHERE sink = '%s'`, paused, sink))
}
