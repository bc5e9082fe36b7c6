package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// SetListening makes the store notice a silent listening connection sooner.
func (s *Store) SetListening(heartbeat, silence time.Duration) {
	s.listening.heartbeat, s.listening.silence = heartbeat, silence
}

// SetServer assigns a target, and a reader that has seen it, to another server.
func SetServer(r store.Reader, t store.Target, server string) {
	r.(*reader).server = server
	t.(*probe).server = server
}

// SetFloorLag sets the number of offsets after which the store reads the locks.
func (s *Store) SetFloorLag(offsets int64) { s.floorLag = offsets }

// Floor returns the floor of a transaction after a probe if the locks list it as one without a lock on the log;
// false if it keeps the one that it had. The store must not be in use.
func (s *Store) Floor(ctx context.Context, t store.Target, id string) (floor int64, risen bool, err error) {
	x, err := parseXID(id)
	locks := s.sql.unlocked
	defer func() { s.sql.unlocked = locks }()
	s.sql.unlocked = "SELECT '" + id + "', server FROM (" + s.sql.snapshot + ") AS s(snapshot, server)"
	floor, risen = s.unlocked(ctx, t.(*probe), &floors{})[x]
	return floor, risen, err
}

// PruneTx runs a function in a pruner's transaction.
func (s *Store) PruneTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	return s.pruneTx(ctx, ``, do)
}

// ErrTooLate exports errTooLate for tests.
var ErrTooLate = errTooLate

// MakePartition creates a partition for the offsets from <= "offset" < to.
func (s *Store) MakePartition(ctx context.Context, from, to int64) error {
	return s.attach(ctx, partition{s.names.Table("from_" + strconv.FormatInt(from, 10)), from, to})
}

// RestoreScan scans the log.
func (s *Store) RestoreScan(ctx context.Context) error {
	_, _, err := s.restoreScan(ctx)
	return err
}

// StartNow finds where a new sink begins, and returns what the transaction that writes it must check.
func (s *Store) StartNow(ctx context.Context) (holds func(context.Context, *sql.Tx) error, err error) {
	at, err := (&dialect{Store: s}).Beginning(ctx, time.Time{})
	return func(ctx context.Context, tx *sql.Tx) error { return at.Holds(ctx, tx) }, err
}

// Move makes the store take its server for another one from now on.
func (s *Store) Move() { s.sql.server = `'another'` }
