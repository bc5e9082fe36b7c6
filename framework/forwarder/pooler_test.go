package forwarder_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// Forwarders that only poll keep no state in sessions, so a pooler may run each transaction in a
// different session.
func TestPollingWorksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{Announcer: outboxes.Silent})
	pooled, err := postgrestest.StartPooler(t, o.dsn, 3)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	o.dsn = pooled
	lanes := func(c *forwarder.Config) { c.Lanes, c.Lease = 4, time.Second }
	first := o.forward("", 10*time.Millisecond, lanes)
	o.forward("", 10*time.Millisecond, lanes)
	for i := range 100 {
		o.publish(strconv.Itoa(i))
	}
	want, got := make(map[string]bool), make(map[string]bool)
	for i := range 100 {
		want[strconv.Itoa(i)] = true
		got[<-o.arrived] = true
	}
	require.Equal(t, want, got)
	first.end()
	o.publish("to who is left")
	o.await("to who is left")
}
