package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// chunk is how many rows of a backlog are written in one statement, so that a
// signal is heeded soon.
const chunk = 100_000

// mysqlChunk is as many as a recursion makes there by default.
const mysqlChunk = 1000

// Statements that write rows $1 to $2 of a batch into the log: $3 is the batch's tag, $4
// the number of keys, $5 the padding of a made-up payload, or the user's, $6 the type and
// $7 its version. PAYLOAD stands for one of the two texts below.
const (
	fillPostgres = fillBegin + `(PAYLOAD)::json` + fillSeries
	fillBinary   = fillBegin + `convert_to(PAYLOAD, 'UTF8')` + fillSeries
	fillSQLite   = `INSERT INTO outbox (id, type, version, key, metadata, payload)
		WITH RECURSIVE number (n) AS (SELECT $1 UNION ALL SELECT n + 1 FROM number WHERE n < $2)
		SELECT $3 || n, $6, $7, 'k' || (n % $4), ` + contentType + `, PAYLOAD FROM number`

	fillMySQL = `INSERT INTO outbox (id, type, version, ` + "`key`" + `, metadata, payload)
		WITH RECURSIVE number (n) AS (SELECT CAST($1 AS SIGNED) UNION ALL SELECT n + 1 FROM number WHERE n < $2)
		SELECT CONCAT($3, n), $6, $7, CONCAT('k', n % $4), ` + contentType + `, PAYLOAD FROM number`

	fillBegin = `INSERT INTO outbox (id, type, version, key, metadata, payload)
		SELECT $3::text || n, $6::text, $7::int, 'k' || (n % $4::bigint), ` + contentType + `, `
	fillSeries  = ` FROM generate_series($1::bigint, $2::bigint) n`
	contentType = `'{"content-type":"application/json"}'`

	madeUpText = `'{"n":' || n || ',"pad":"' || $5 || '"}'`
	sampleText = `$5`
	// MySQL's form of the first one
	madeUpConcat = `CONCAT('{"n":', n, ',"pad":"', $5, '"}')`
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
	query, s, content := b.fillStatement(), b.config.sample(), b.config.pad()
	if s.Payload != nil {
		content = string(s.Payload)
	}
	step := chunk
	if b.database.mysql {
		step = mysqlChunk
	}
	for from := 0; from < n; from += step {
		b.progress.Now(fmt.Sprintf("writing %s of %s rows", count(int64(from)), count(int64(n))))
		if err := b.database.exec(ctx, query, from, min(from+step, n)-1, named.tag, b.config.Keys, content, s.Type, s.Version); err != nil {
			return named, fmt.Errorf("write a backlog: %w", err)
		}
	}
	if b.database.postgres {
		return named, b.database.exec(ctx, `ANALYZE outbox`) // so that autovacuum does not do it during a run
	}
	return named, nil
}

func (b *bench) fillStatement() string {
	query, payload := fillPostgres, madeUpText
	switch {
	case b.database.mysql:
		query, payload = fillMySQL, madeUpConcat
	case !b.database.postgres:
		query = fillSQLite
	case b.database.Store.BinaryPayload():
		query = fillBinary
	}
	if b.config.Sample.Payload != nil {
		payload = sampleText
	}
	return strings.Replace(query, "PAYLOAD", payload, 1)
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
