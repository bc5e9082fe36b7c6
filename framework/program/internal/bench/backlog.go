package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// chunk is how many rows of a backlog one statement writes. Between statements the bench can be
// interrupted.
const chunk = 100_000

// mysqlChunk is MySQL's default limit of a recursive query.
const mysqlChunk = 1000

// These statements write the rows $1 to $2 of a batch to the log: $3 is the tag of the batch, $4 the
// number of keys, $5 the padding of a made-up payload or the user's payload, $6 the type and $7 its
// version. One of the two texts below replaces PAYLOAD.
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
	// The first text for MySQL.
	madeUpConcat = `CONCAT('{"n":', n, ',"pad":"', $5, '"}')`
)

// append appends a backlog of n notifications to the log.
func (b *bench) append(ctx context.Context, n int) (batch, error) {
	named := b.database.newBatch()
	query, s, content := b.fillStatement(), b.config.sample(), pad()
	if s.Payload != nil {
		content = string(s.Payload)
	}
	step := chunk
	if b.database.mysql {
		step = mysqlChunk
	}
	for from := 0; from < n; from += step {
		b.progress.Now(fmt.Sprintf("writing %s of %s rows", result.Count(int64(from)), result.Count(int64(n))))
		if err := b.database.exec(ctx, query, from, min(from+step, n)-1, named.tag, keys, content, s.Type, s.Version); err != nil {
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
