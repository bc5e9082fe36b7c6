package postgres

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Types counts the last rows of the log by type; see store.Census.
func (s *Store) Types(ctx context.Context, rows int) ([]store.TypeCount, error) {
	counts, err := s.types(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("count the types of the log: %w", advise(err))
	}
	return counts, nil
}

func (s *Store) types(ctx context.Context, limit int) (counts []store.TypeCount, err error) {
	rows, err := s.db.QueryContext(ctx, `
		SELECT last.type, last.version, last.count, o.occurred_on
		FROM (
			SELECT type, max(version) AS version, count(*) AS count, max("offset") AS "offset"
			FROM (SELECT "offset", type, version FROM `+s.sql.prefix+` ORDER BY "offset" DESC LIMIT $1) AS newest
			GROUP BY type
		) AS last
		JOIN `+s.sql.prefix+` AS o ON o."offset" = last."offset"
		ORDER BY last.type COLLATE "C"`, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.TypeCount
		if err := rows.Scan(&c.Type, &c.Version, &c.Count, &c.OccurredOn); err != nil {
			return nil, err
		}
		c.OccurredOn = c.OccurredOn.UTC()
		counts = append(counts, c)
	}
	return counts, rows.Err()
}
