package mysql

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// target is the extent of the log at a probe.
type target struct {
	at   snapshot
	last int64 // the highest committed offset; at may not reach it yet
	life string

	brought *brought // nil if pages must be read
}

var _ store.QuietTarget = (*target)(nil)

// Last returns the highest offset with a committed row.
func (t *target) Last() int64 { return t.last }

// complete reports whether the snapshot reaches the end of the log.
func (t *target) complete() bool { return t.at.top >= t.last }

// Closed implements store.QuietTarget.
func (t *target) Closed() bool { return t.complete() && len(t.at.holes) == 0 }

// Moved implements store.QuietTarget.
func (t *target) Moved(since store.Target) bool {
	before, ok := since.(*target)
	return !ok || t.last != before.last || t.life != before.life || !t.Closed()
}

// ProbeLog reads what is after the known top; see tracker. The first probe of a process begins at the
// cursors.
func (d *dialect) ProbeLog(ctx context.Context) (store.Target, error) {
	t, err := d.tracker.probe(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("probe the log: %w", session.Advise(err))
	}
	return t, nil
}

// probeAll probes until the snapshot reaches the end of the log.
func (s *Store) probeAll(ctx context.Context) (*target, error) {
	for {
		t, err := s.tracker.probe(ctx, nil)
		if err != nil || t.complete() {
			return t, err
		}
	}
}
