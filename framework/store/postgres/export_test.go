package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// SetListening has the store notice a silent listening connection sooner.
func (s *Store) SetListening(heartbeat, silence time.Duration) {
	s.listening.heartbeat, s.listening.silence = heartbeat, silence
}

// SetServer has a target, and a reader that has met it, be of another server.
func SetServer(r store.Reader, t store.Target, server string) {
	r.(*reader).server = server
	t.(*probe).server = server
}

// SetFloorLag has the store read the locks after fewer offsets.
func (s *Store) SetFloorLag(offsets int64) { s.floorLag = offsets }

// PruneTx runs a function in a pruner's transaction.
func (s *Store) PruneTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	return s.pruneTx(ctx, ``, do)
}

// ErrTooLate is errTooLate.
var ErrTooLate = errTooLate

// MakePartition makes a partition of the offsets from <= "offset" < to.
func (s *Store) MakePartition(ctx context.Context, from, to int64) error {
	return s.attach(ctx, partition{s.names.Table("from_" + strconv.FormatInt(from, 10)), from, to})
}

// RestoreScan looks through the log.
func (s *Store) RestoreScan(ctx context.Context) error {
	_, _, err := s.restoreScan(ctx)
	return err
}

// Answers is what a new sink's position is asked for in its transaction.
func (s *Store) Answers(ctx context.Context, tx *sql.Tx, server string) error {
	return s.answers(ctx, tx, server)
}

// ServerOf is the life of the server that a target is of.
func ServerOf(t store.Target) string { return t.(*probe).server }

// SetBehindTime has the store say sooner that its standby lags behind.
func (s *Store) SetBehindTime(d time.Duration) { s.standby.behindTime = d }

// BelieveStandby has the store take its standby to have replayed everything.
func (s *Store) BelieveStandby() {
	s.standby.query = strings.Replace(s.standby.query, `coalesce(pg_last_wal_replay_lsn(), '0/0')`, `'FFFFFFFF/FFFFFFFF'::pg_lsn`, 1)
}

// SleepOnStandby has each page take a minute there.
func (s *Store) SleepOnStandby() {
	s.sql.notCancelled += ` AND (SELECT count(*) FROM (SELECT CASE WHEN pg_is_in_recovery() THEN pg_sleep(60)::text END) slept) = 1`
}
