package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

var _ store.Partitioner = (*Store)(nil)

const (
	// defaultPartition is the suffix of the partition for offsets outside of all ranges.
	defaultPartition = "default"
	// partitionsKept is how many partitions are kept ahead of the sequence.
	partitionsKept = 4
	// maxWaits bounds for how many partitions in use one pass waits.
	maxWaits = 10
)

// partition is a part of the log with the offsets From <= "offset" < To.
type partition struct {
	Name     string // quoted, with its schema
	From, To int64
}

// partitionsAhead returns the missing partitions after the highest one, for a sequence whose last
// offset is last.
//
// A range must not begin where rows may be about to enter the default partition: they would be
// refused. So a range that was not created in time, and would begin less than a partition's rows
// ahead of the sequence, begins that much later; the default partition gets the rows in between.
func partitionsAhead(n names, highest partition, rows, last int64) []partition {
	if rows == 0 {
		return nil
	}
	from := highest.To
	if last > 0 && from < last+rows {
		from = last + rows
	}
	var missing []partition
	for from <= last+partitionsKept*rows {
		missing = append(missing, partition{n.Table("from_" + strconv.FormatInt(from, 10)), from, from + rows})
		from += rows
	}
	return missing
}

// isPartitioned reports whether the log is partitioned.
func isPartitioned(ctx context.Context, q store.RowQuerier, n names) (partitioned bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)), false)`, n.Log()).Scan(&partitioned)
	if err != nil {
		return false, fmt.Errorf("look at the log %s: %w", n, err)
	}
	return partitioned, nil
}

// extendPartitions is for Migrate: it refuses to partition an existing log.
func extendPartitions(ctx context.Context, db *sql.DB, c Config, n names) error {
	partitioned, err := isPartitioned(ctx, db, n)
	switch {
	case err != nil:
		return err
	case !partitioned && c.PartitionRows > 0:
		return fmt.Errorf("%w: %s was made without partitions and is not converted: use another outbox.prefix, "+
			"or, once all sinks have settled everything and no application publishes, drop its tables and migrate again", store.ErrPartitions, n)
	case !partitioned:
		return nil
	}
	s := &Store{db: db, names: n, sql: newStatements(n, serverSQL(minVersion)), parts: true}
	_, err = s.extend(ctx, c.PartitionRows)
	return err
}

// Partitioned reports whether the log is partitioned.
func (s *Store) Partitioned() bool { return s.parts && s.Source() == nil }

// ExtendPartitions creates partitions ahead; see store.Partitioner. They are as large as the
// highest one.
func (s *Store) ExtendPartitions(ctx context.Context) (int, error) {
	if !s.parts {
		return 0, nil
	}
	if err := s.checkOwner(ctx); err != nil {
		return 0, fmt.Errorf("make partitions: %w", err)
	}
	return s.extend(ctx, 0)
}

// owns reports whether this role may create and drop partitions.
func (s *Store) owns(ctx context.Context, q store.RowQuerier) (owns bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')
		FROM pg_class WHERE oid = to_regclass($1)`, s.names.Log()).Scan(&owns)
	return owns, err
}

// checkOwner returns store.ErrNotOwner, with a hint, if this role may not create and drop partitions.
func (s *Store) checkOwner(ctx context.Context) error {
	owns, err := s.owns(ctx, s.db)
	if err != nil || owns {
		return err
	}
	return &store.AdvisedError{Err: store.ErrNotOwner, Hint: "grant the role that owns " + s.names.String() + " to this role, and CREATE on the schema; " +
		"until then rows that are published after the last partition go into the default one"}
}

func (s *Store) extend(ctx context.Context, rows int64) (made int, err error) {
	ranges, err := s.partitions(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("list the partitions: %w", err)
	}
	highest := partition{To: 1}
	if len(ranges) > 0 {
		highest = ranges[len(ranges)-1]
	}
	if rows == 0 {
		rows = highest.To - highest.From
	}
	now, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil {
		return 0, fmt.Errorf("make partitions: %w", err)
	}
	missing := partitionsAhead(s.names, highest, rows, now.last)
	if len(missing) == 0 && rows != highest.To-highest.From {
		missing = []partition{{s.names.Table("from_" + strconv.FormatInt(highest.To, 10)), highest.To, highest.To + rows}} // later ones will be as large
	}
	for _, p := range missing {
		if err := s.attach(ctx, p); err != nil {
			if isInTheWay(err) || isDoneAlready(err) || errors.Is(err, errTooLate) {
				return made, nil
			}
			return made, fmt.Errorf("make partition %s: %w", p.Name, err)
		}
		made++
	}
	return made, nil
}

// errTooLate: a partition was not created because the sequence has come near meanwhile. The next
// one begins later.
var errTooLate = errors.New("the sequence has come near")

// attach creates a partition. Creating a table first and then attaching it takes no lock on the log
// that would conflict with publishers or readers. The lock that it does take comes first, so that
// processes that create partitions take turns.
func (s *Store) attach(ctx context.Context, p partition) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(
		`SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE;
		CREATE TABLE %s (LIKE %s INCLUDING ALL); ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`,
		prunerPatience.Milliseconds(), catalog.IdleTime.Milliseconds(), s.names.Log(), p.Name, s.names.Log(), s.names.Log(), p.Name, p.From, p.To)); catalog.Refused(err, "23514") { // the default partition has such rows already
		return errTooLate
	} else if err != nil {
		return err
	}
	var last int64
	if err := tx.QueryRowContext(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+s.names.Table("offset_seq")).Scan(&last); err != nil {
		return err
	}
	if last > 0 && p.From <= last+(p.To-p.From)/2 { // creating it has taken too long
		return errTooLate
	}
	return failpoint.Partition.Do(tx.Commit)
}

// partitions returns the ranges in the order of their offsets, without the default partition.
func (s *Store) partitions(ctx context.Context, q interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (ranges []partition, err error) {
	const bound = `pg_get_expr(c.relpartbound, c.oid)`
	// A partition that another pruner is dropping has no bound any more. MATERIALIZED reads it only
	// once, so that its value cannot change within the statement.
	rows, err := q.QueryContext(ctx, `WITH parts AS MATERIALIZED (
			SELECT format('%I.%I', nspname, relname) AS name, regexp_match(`+bound+`, 'FROM \(''?(-?\d+)''?\) TO \(''?(-?\d+)''?\)') AS range
			FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE i.inhparent = to_regclass($1))
		SELECT name, range[1]::bigint, range[2]::bigint FROM parts WHERE range IS NOT NULL ORDER BY 2`, s.names.Log())
	if err != nil {
		return nil, err
	}
	defer func() { tables.CloseRows(rows, &err) }()
	for rows.Next() {
		var p partition
		if err := rows.Scan(&p.Name, &p.From, &p.To); err != nil {
			return nil, err
		}
		ranges = append(ranges, p)
	}
	return ranges, rows.Err()
}

// PrunePartitions drops old partitions; see store.Partitioner. The highest one stays, since its
// size is that of the next ones.
func (s *Store) PrunePartitions(ctx context.Context, e store.Pruning) (dropped int, err error) {
	if !s.parts {
		return 0, nil
	}
	if err := s.checkOwner(ctx); err != nil {
		return 0, fmt.Errorf("drop partitions: %w", err)
	}
	ranges, err := s.partitions(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("list the partitions: %w", err)
	}
	lockLog, waits := true, 0
	for _, p := range slices.Delete(ranges, max(0, len(ranges)-1), len(ranges)) {
		gone, err := s.expirePartition(ctx, p, e, &lockLog)
		switch {
		case isInTheWay(err):
			if waits++; waits == maxWaits {
				return dropped, nil
			}
		case isDoneAlready(err):
		case err != nil:
			return dropped, fmt.Errorf("drop partition %s: %w", p.Name, advise(err))
		case gone:
			dropped++
		}
	}
	return dropped, nil
}

// expirePartition drops a partition if all of its rows may go. Its lock on the partition waits for
// the transactions that have written to it, so no row is missed, and does not block readers. A
// transaction that took an offset of its range and inserts later uses the default partition. For
// lockLog see drop.
func (s *Store) expirePartition(ctx context.Context, p partition, e store.Pruning, lockLog *bool) (gone bool, err error) {
	empty, worth, err := s.worthALock(ctx, p, e)
	if err != nil || !worth || empty && !*lockLog {
		return false, err
	}
	err = s.pruneTx(ctx, failpoint.Partition, `LOCK TABLE `+p.Name+` IN SHARE MODE`, func(tx *sql.Tx) error {
		progress, err := s.run.Progress(ctx, tx, e.Sinks)
		if err != nil || progress.KeepsAll() {
			return err
		}
		may := false
		err = s.run.Row(ctx, tx, `SELECT NOT EXISTS (SELECT FROM `+p.Name+` WHERE NOT (?))`+whole(p.Name), s.run.Removable(e.Age, progress)).Scan(&may)
		if err != nil || !may {
			return err
		}
		gone, err = s.drop(ctx, tx, p, empty, lockLog)
		return err
	})
	return gone && err == nil, err
}

// worthALock reports whether the sequence has passed the partition by another partition's length,
// and the partition is empty or its last row is old.
func (s *Store) worthALock(ctx context.Context, p partition, e store.Pruning) (empty, worth bool, err error) {
	now, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil || now.last < p.To+(p.To-p.From) {
		return false, false, err
	}
	err = s.run.Row(ctx, s.db, `SELECT ? FROM `+p.Name+` ORDER BY "offset" DESC LIMIT 1`+whole(p.Name), s.run.Old(e.Age)).Scan(&worth)
	if errors.Is(err, sql.ErrNoRows) {
		return true, true, nil
	}
	return false, worth, err
}

// isDoneAlready reports whether another pruner has dropped or created the partition.
func isDoneAlready(err error) bool {
	return catalog.Refused(err,
		"42P01", // undefined_table
		"42P07", // duplicate_table
		"42P17", // invalid_object_definition: it would overlap another
	)
}

// drop drops a partition. That needs a moment in which no open transaction has used the log. If
// that moment does not come soon, drop only empties the partition, which needs no lock on the log,
// and its table is dropped later. Publishers wait while drop waits for that moment, so lockLog is
// false from then on: what was in the way, such as a backup, is in the way for all partitions.
func (s *Store) drop(ctx context.Context, tx *sql.Tx, p partition, empty bool, lockLog *bool) (gone bool, err error) {
	if *lockLog {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT drop_partition`); err != nil {
			return false, err
		}
		_, err := tx.ExecContext(ctx, `DROP TABLE `+p.Name)
		if !isInTheWay(err) {
			return err == nil, err
		}
		*lockLog = false
		if _, err := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT drop_partition`); err != nil {
			return false, err
		}
	}
	if empty {
		return false, nil
	}
	_, err = tx.ExecContext(ctx, `TRUNCATE `+p.Name)
	return err == nil, err
}
