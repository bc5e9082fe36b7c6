package looks

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/store"
)

// Types counts by type and version; see store.Inspector.
func (t *Looks) Types(ctx context.Context, limit int) ([]store.TypeCount, error) {
	counts, err := t.loggedTypes(ctx, limit)
	if err == nil {
		counts, err = t.addParkedTypes(ctx, counts, limit)
	}
	if err != nil {
		return nil, t.run.Failed(err, "count types")
	}
	slices.SortFunc(counts, func(a, b store.TypeCount) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Version, b.Version))
	})
	return counts, nil
}

func (t *Looks) loggedTypes(ctx context.Context, limit int) ([]store.TypeCount, error) {
	rows := tables.SQL(`{log}`)
	if limit > 0 {
		rows = tables.SQL(`(SELECT "offset", type, version FROM {log} ORDER BY "offset" DESC {limit} ?) newest`, limit)
	}
	return tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, c *store.TypeCount) error {
		return rows.Scan(&c.Type, &c.Version, &c.Rows, t.run.Into(&c.OccurredOn))
	}, `SELECT counted.type, counted.version, counted.n, o.occurred_on
		FROM (SELECT type, version, count(*) AS n, max("offset") AS "offset" FROM ? GROUP BY type, version) counted
		JOIN {log} o ON o."offset" = counted."offset" {whole log}`, rows)
}

func (t *Looks) addParkedTypes(ctx context.Context, counts []store.TypeCount, limit int) ([]store.TypeCount, error) {
	parked := tables.SQL(`{parked}`)
	if limit > 0 {
		parked = tables.SQL(`(SELECT type, version FROM {parked} {limit} ?) first_parked`, limit)
	}
	err := t.run.Each(ctx, t.run.DB, func(rows *sql.Rows) error {
		var c store.TypeCount
		if err := rows.Scan(&c.Type, &c.Version, &c.Parked); err != nil {
			return err
		}
		i := slices.IndexFunc(counts, func(l store.TypeCount) bool { return l.Type == c.Type && l.Version == c.Version })
		if i < 0 {
			counts = append(counts, c)
		} else {
			counts[i].Parked = c.Parked
		}
		return nil
	}, `SELECT type, version, count(*) FROM ? GROUP BY type, version {whole parked}`, parked)
	return counts, err
}
