package mysql_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

// looker returns a reader that has read the whole log.
func looker(t *testing.T, s *mysql.Store, filter store.Filter) store.Looker {
	t.Helper()
	r, err := s.NewReader(nil, filter)
	require.NoError(t, err)
	read(t, s, r)
	return r.(store.Looker)
}

// look probes with a reader and returns the new target.
func look(t *testing.T, r store.Looker) store.Target {
	t.Helper()
	target, err := r.Look(t.Context())
	require.NoError(t, err)
	return target
}

// all returns the offsets of all pages up to a target.
func all(ctx context.Context, t *testing.T, r store.Reader, target store.Target) (offsets []int64) {
	t.Helper()
	for {
		page, err := r.Next(ctx, target, 1000)
		require.NoError(t, err)
		for _, e := range page.Envelopes {
			offsets = append(offsets, e.Offset)
		}
		if page.CaughtUp {
			return offsets
		}
	}
}

func TestAProbeReturnsNewRows(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	insert := func(typ string) { exec(t, db, `INSERT INTO outbox (type, payload) VALUES ('`+typ+`', '{}')`) }
	insert("wanted")
	open := begin(t, db)
	exec(t, open, `INSERT INTO outbox (type, payload) VALUES ('wanted', '{}')`)
	r := looker(t, s, store.Filter{Slots: allRows.Slots, Types: notification.TypeFilter{Names: []string{"wanted"}}})

	insert("wanted")
	insert("other")
	exec(t, db, `INSERT INTO outbox (type, payload, deliver_at) VALUES ('wanted', '{}', '2030-01-01')`)
	exec(t, db, "INSERT INTO outbox_cancelled (`offset`, id) SELECT `offset`, id FROM outbox WHERE deliver_at IS NOT NULL")
	insert("wanted")
	target := look(t, r)
	insert("wanted")
	noQuestion, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, []int64{3, 6}, all(noQuestion, t, r, target))

	require.NoError(t, open.Commit())
	require.Equal(t, []int64{2, 7}, all(t.Context(), t, r, look(t, r)), "one was late")
	require.Empty(t, all(noQuestion, t, r, look(t, r)))
}

// The probe of an empty log is followed by another one, which may see new rows.
func TestAProbeOfAnEmptyLogReturnsNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	r := looker(t, s, allRows)
	published := make(chan struct{})
	go func() {
		defer close(published)
		_, err := db.Exec(insertOne)
		assert.NoError(t, err)
	}()
	var found []int64
	for len(found) == 0 {
		found = all(t.Context(), t, r, look(t, r))
		if len(found) == 0 {
			select {
			case <-published:
				found = all(t.Context(), t, r, look(t, r))
				require.NotEmpty(t, found)
			default:
			}
		}
	}
	require.Equal(t, []int64{1}, found)
}

func TestRowsThatAProbeDoesNotReturnAreRead(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	r := looker(t, s, allRows)
	exec(t, db, insertOne+strings.Repeat(`, ('t', '{}')`, 300))
	require.Len(t, all(t.Context(), t, r, look(t, r)), 301, "many rows")

	exec(t, db, insertOne+`, ('t', CONCAT('"', REPEAT('x', 40000), '"'))`)
	target := look(t, r)
	page, err := r.Next(t.Context(), target, 1000)
	require.NoError(t, err)
	require.Len(t, page.Envelopes, 2)
	require.Len(t, page.Envelopes[1].Payload, 40002, "a large row")

	exec(t, db, insertOne)
	other, err := s.NewReader(nil, allRows)
	require.NoError(t, err)
	target = look(t, r)
	require.Len(t, all(t.Context(), t, other, target), 304, "another reader")
	exec(t, db, insertOne)
	require.Equal(t, []int64{304, 305}, all(t.Context(), t, r, look(t, r)), "a later target")
}
