package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

var (
	_ store.QuietTarget = (*probe)(nil)
	_ store.Neighbour   = (*Store)(nil)
)

// Closed implements store.QuietTarget: transactions above the watermark only take offsets above
// Last, and all others have ended.
func (p *probe) Closed() bool {
	w := &p.watermark
	return w.id > 0 && w.bound == p.last && p.snapshot.xmin > w.id
}

// Moved implements store.QuietTarget.
func (p *probe) Moved(since store.Target) bool {
	before, ok := since.(*probe)
	return !ok || p.last != before.last || p.server != before.server || p.history != before.history
}

// Handle implements store.Neighbour.
func (s *Store) Handle() *sql.DB { return s.db }

// probedTogether is how many logs one statement probes. Planning it locks the sequence of each.
const probedTogether = 250

// ProbeTogether implements store.Neighbour.
func (s *Store) ProbeTogether(ctx context.Context, logs []store.Neighbour) ([]store.Target, error) {
	targets := make([]store.Target, len(logs))
	for from := 0; from < len(logs); from += probedTogether {
		upTo := min(from+probedTogether, len(logs))
		if err := s.probeTogether(ctx, logs[from:upTo], targets[from:upTo]); err != nil {
			return nil, fmt.Errorf("probe the logs: %w", advise(err))
		}
	}
	return targets, nil
}

func (s *Store) probeTogether(ctx context.Context, logs []store.Neighbour, targets []store.Target) error {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	var query strings.Builder
	stores, known := make([]*Store, len(logs)), make([]bounds, len(logs))
	for i, log := range logs {
		its, ok := log.(*Store)
		if !ok || its.db != s.db || its.Source() != nil {
			return fmt.Errorf("%T is not a log of this database", log)
		}
		stores[i], known[i] = its, its.known()
		if i > 0 {
			query.WriteString(" UNION ALL ")
		}
		query.WriteString("SELECT " + strconv.Itoa(i) + ", p.* FROM (" + its.sql.probe + ") p")
	}
	rows, err := s.db.QueryContext(ctx, query.String())
	if err != nil {
		return err
	}
	defer rows.Close()
	type seen struct {
		*probe
		snapshot string
	}
	all := make([]seen, len(logs))
	for rows.Next() {
		var i int
		var sequence sql.NullInt64
		one := seen{probe: &probe{}}
		if err := rows.Scan(&i, &one.snapshot, &one.last, &sequence, &one.history.Log, &one.server); err != nil {
			return err
		}
		one.history.Sequence = sequence.Int64
		all[i] = one
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for i, one := range all {
		if one.probe == nil {
			return fmt.Errorf("log %s did not answer", stores[i].names)
		}
		if err := stores[i].complete(ctx, s.db, one.probe, one.snapshot, known[i]); err != nil {
			return err
		}
		targets[i] = one.probe
	}
	return nil
}
