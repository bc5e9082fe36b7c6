package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Partitioner = (*Store)(nil)

const (
	// defaultPartition ends the name of the partition for what no range takes.
	defaultPartition = "default"
	// partitionsKept is how many partitions' worth of offsets are ready ahead of
	// the sequence.
	partitionsKept = 4
	// maxWaits bounds how many partitions in use one look at all partitions waits
	// for.
	maxWaits = 10
)

// partition is a part of the log with the offsets From <= "offset" < To.
type partition struct {
	Name     string // quoted, with its schema
	From, To int64
}

// partitionsAhead are the partitions that are missing behind the highest one, for
// a sequence that stands at last.
//
// A range must not begin where rows may be on their way into the default
// partition: they would be refused. So one that would begin less than a
// partition's rows ahead of the sequence, because it was not made in time, begins
// that much farther on, and the default partition has what lies between.
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
func isPartitioned(ctx context.Context, q querier, n names) (partitioned bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)), false)`, n.Log()).Scan(&partitioned)
	if err != nil {
		return false, fmt.Errorf("look at the log %s: %w", n, err)
	}
	return partitioned, nil
}

// extendPartitions is for Migrate: it refuses to partition a log that is not.
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
	s := &Store{db: db, names: n, sql: newStatements(n, serverSQL(minVersion), false), parts: true}
	_, err = s.extend(ctx, c.PartitionRows)
	return err
}

// Partitioned reports whether the log is cut into partitions.
func (s *Store) Partitioned() bool { return s.parts && s.Source() == nil }

// ExtendPartitions makes partitions ahead; see store.Partitioner. They are as large as
// the highest one.
func (s *Store) ExtendPartitions(ctx context.Context) (int, error) {
	if !s.parts {
		return 0, nil
	}
	if err := s.checkOwner(ctx); err != nil {
		return 0, fmt.Errorf("make partitions: %w", err)
	}
	return s.extend(ctx, 0)
}

// owns reports whether this role may make and drop partitions.
func (s *Store) owns(ctx context.Context, q querier) (owns bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')
		FROM pg_class WHERE oid = to_regclass($1)`, s.names.Log()).Scan(&owns)
	return owns, err
}

// checkOwner returns store.ErrNotOwner, with the way out, where it may not.
func (s *Store) checkOwner(ctx context.Context) error {
	owns, err := s.owns(ctx, s.db)
	if err != nil || owns {
		return err
	}
	return &store.AdvisedError{Err: store.ErrNotOwner, Hint: "the owner of " + s.names.String() + " is to be granted to this role, which also needs CREATE on the schema; " +
		"until then what is published after the last partition goes into the default one"}
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
	for _, p := range partitionsAhead(s.names, highest, rows, now.last) {
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

// errTooLate is why a partition was not made: the sequence has come near meanwhile.
// The next one begins farther on.
var errTooLate = errors.New("the sequence has come near")

// attach makes a partition. A table that is made first and attached then takes no
// lock on the log that a publisher or reader would meet. The lock that it does take
// comes first, so that processes that make partitions take turns.
func (s *Store) attach(ctx context.Context, p partition) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(
		`SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d; LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE;
		CREATE TABLE %s (LIKE %s INCLUDING ALL); ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`,
		prunerPatience.Milliseconds(), idleTime.Milliseconds(), s.names.Log(), p.Name, s.names.Log(), s.names.Log(), p.Name, p.From, p.To)); refused(err, "23514") { // the default partition has such rows already
		return errTooLate
	} else if err != nil {
		return err
	}
	var last int64
	if err := tx.QueryRowContext(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+s.names.Table("offset_seq")).Scan(&last); err != nil {
		return err
	}
	if last > 0 && p.From <= last+(p.To-p.From)/2 { // making it has taken long
		return errTooLate
	}
	return tx.Commit()
}

// partitions lists the ranges in the order of their offsets, without the default
// partition.
func (s *Store) partitions(ctx context.Context, q interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (ranges []partition, err error) {
	const bound = `pg_get_expr(c.relpartbound, c.oid)`
	// One that another pruner drops meanwhile has no bound any more. What is asked once
	// cannot change its answer in between.
	rows, err := q.QueryContext(ctx, `WITH parts AS MATERIALIZED (
			SELECT format('%I.%I', nspname, relname) AS name, regexp_match(`+bound+`, 'FROM \(''?(-?\d+)''?\) TO \(''?(-?\d+)''?\)') AS range
			FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE i.inhparent = to_regclass($1))
		SELECT name, range[1]::bigint, range[2]::bigint FROM parts WHERE range IS NOT NULL ORDER BY 2`, s.names.Log())
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var p partition
		if err := rows.Scan(&p.Name, &p.From, &p.To); err != nil {
			return nil, err
		}
		ranges = append(ranges, p)
	}
	return ranges, rows.Err()
}

// PrunePartitions drops old partitions; see store.Partitioner. The highest one stays,
// which says how large the next ones are.
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

// expirePartition drops a partition if each of its rows may go. The lock on it waits
// for the transactions that have written to it, so none is overlooked, and does not
// keep others from reading. A transaction that took an offset of its range and
// inserts only later finds the default partition. lockLog: see drop.
func (s *Store) expirePartition(ctx context.Context, p partition, e store.Pruning, lockLog *bool) (gone bool, err error) {
	empty, worth, err := s.worthALock(ctx, p, e)
	if err != nil || !worth || empty && !*lockLog {
		return false, err
	}
	err = s.pruneTx(ctx, `LOCK TABLE `+p.Name+` IN SHARE MODE`, func(tx *sql.Tx) error {
		progress, err := s.progress(ctx, tx, e.Sinks)
		if err != nil || progress.keepsAll() {
			return err
		}
		q := statement{}
		q.WriteString(`SELECT NOT EXISTS (SELECT FROM ` + p.Name + ` WHERE NOT (` + old(&q, e.Age))
		progress.settledSQL(&q)
		q.WriteString(`))` + whole(p.Name))
		may := false
		if err := tx.QueryRowContext(ctx, q.String(), q.args...).Scan(&may); err != nil || !may {
			return err
		}
		gone, err = s.drop(ctx, tx, p, empty, lockLog)
		return err
	})
	return gone && err == nil, err
}

// worthALock reports whether the sequence has passed the partition by another one's
// length, and its last row is old, or it is empty.
func (s *Store) worthALock(ctx context.Context, p partition, e store.Pruning) (empty, worth bool, err error) {
	now, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil || now.last < p.To+(p.To-p.From) {
		return false, false, err
	}
	q := statement{}
	q.WriteString(`SELECT ` + old(&q, e.Age) + ` FROM ` + p.Name + ` ORDER BY "offset" DESC LIMIT 1` + whole(p.Name))
	err = s.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&worth)
	if errors.Is(err, sql.ErrNoRows) {
		return true, true, nil
	}
	return false, worth, err
}

// isDoneAlready reports whether another pruner has dropped or made the partition.
func isDoneAlready(err error) bool {
	return refused(err,
		"42P01", // undefined_table
		"42P07", // duplicate_table
		"42P17", // invalid_object_definition: it would overlap another
	)
}

// drop takes a partition away. That needs a moment in which no open transaction has
// used the log; where that moment does not come soon, the partition is emptied,
// which needs nothing but the partition, and its table goes at a later time.
// Publishers wait while drop waits for that moment, so lockLog is false from then
// on: what was in the way, such as a backup, is in the way for all partitions.
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
