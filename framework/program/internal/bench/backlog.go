package bench

import (
	"context"
	"fmt"
	"time"
)

// chunk is how many rows of a backlog are written in one statement, so that a
// signal is heeded soon.
const chunk = 100_000

// Statements that write rows $1 to $2 of a batch into the log: $3 is the batch's
// tag, $4 the number of keys, $5 the padding of a payload.
const (
	fillPostgres = fillBegin + `$3::text || n, '` + Type + `', 'k' || (n % $4::bigint), ` + contentType + `, (` + payloadText + `)::json` + fillSeries
	fillBinary   = fillBegin + `$3::text || n, '` + Type + `', 'k' || (n % $4::bigint), ` + contentType + `, convert_to(` + payloadText + `, 'UTF8')` + fillSeries
	fillSQLite   = `INSERT INTO outbox (id, type, key, metadata, payload)
		WITH RECURSIVE number (n) AS (SELECT $1 UNION ALL SELECT n + 1 FROM number WHERE n < $2)
		SELECT $3 || n, '` + Type + `', 'k' || (n % $4), ` + contentType + `, ` + payloadText + ` FROM number`

	fillBegin   = `INSERT INTO outbox (id, type, key, metadata, payload) SELECT `
	fillSeries  = ` FROM generate_series($1::bigint, $2::bigint) n`
	contentType = `'{"content-type":"application/json"}'`
	payloadText = `'{"n":' || n || ',"pad":"' || $5 || '"}'`
)

// fill empties the log and writes a backlog of n notifications into it.
func (b *bench) fill(ctx context.Context, n int) (batch, error) {
	if err := b.database.empty(ctx); err != nil {
		return batch{}, err
	}
	return b.append(ctx, n)
}

// append writes a backlog of n notifications behind what is in the log.
func (b *bench) append(ctx context.Context, n int) (batch, error) {
	named := b.database.newBatch()
	query := b.fillStatement()
	for from := 0; from < n; from += chunk {
		b.progress.Now(fmt.Sprintf("writing %s of %s rows", count(int64(from)), count(int64(n))))
		if err := b.database.exec(ctx, query, from, min(from+chunk, n)-1, named.tag, b.config.Keys, b.config.pad()); err != nil {
			return named, fmt.Errorf("write a backlog: %w", err)
		}
	}
	if b.database.postgres {
		return named, b.database.exec(ctx, `ANALYZE outbox`) // so that autovacuum does not do it during a run
	}
	return named, nil
}

func (b *bench) fillStatement() string {
	switch {
	case !b.database.postgres:
		return fillSQLite
	case b.database.Store.BinaryPayload():
		return fillBinary
	}
	return fillPostgres
}

const (
	// aim is how long a run over a backlog is to take where the user does not say how
	// many rows.
	aim = time.Second
	// Bounds of what is chosen then.
	fewestRows, mostRows = 200, 200_000
)

// rowsFor finds how many rows take about as long as a run is to take: those that the
// user wants, or else what measure says, which drains a backlog of so many.
func (b *bench) rowsFor(ctx context.Context, measure func(context.Context, int) (time.Duration, error)) (int, error) {
	if b.config.Rows > 0 {
		return b.config.Rows, nil
	}
	for rows := fewestRows; ; {
		took, err := measure(ctx, rows)
		if err != nil {
			return 0, err
		}
		factor := aim.Seconds() / took.Seconds()
		next := min(max(int(float64(rows)*min(factor, 20)), fewestRows), mostRows)
		if took > aim/4 || next == rows {
			return next, nil
		}
		rows = next
	}
}
