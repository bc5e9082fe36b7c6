package kafka

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// followTime is how far the groups may lag behind the cursors.
	followTime = 2 * time.Second
	// followAgain is when an unchanged position is written again, since Kafka expires old ones.
	followAgain = time.Hour
)

// groups are the consumer groups that show the lag of sinks. Nothing depends on them, so a failed write
// does no damage.
type groups struct {
	source *Source

	mu     sync.Mutex
	moved  map[string]map[partition]position // by sink; changed since the last write
	had    map[string]map[partition]written
	timer  *time.Timer // runs while moved is not empty
	closed bool
	failed string // the last error that was logged
	work   sync.WaitGroup
}

// written is a position that a group has.
type written struct {
	position
	at time.Time
}

// follow records a position.
func (g *groups) follow(sink string, p position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had := g.had[sink][p.partition]; g.closed || had.position == p && time.Since(had.at) < followAgain {
		return
	}
	if g.moved[sink] == nil {
		g.moved[sink] = make(map[partition]position)
	}
	g.moved[sink][p.partition] = p
	if g.timer == nil {
		g.work.Add(1)
		g.timer = time.AfterFunc(followTime, func() {
			defer g.work.Done()
			g.write()
		})
	}
}

// write commits the changed positions.
func (g *groups) write() {
	g.mu.Lock()
	moved := g.moved
	g.moved, g.timer = make(map[string]map[partition]position), nil
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), g.source.config.timeout)
	defer cancel()
	var first error
	for sink, positions := range moved {
		var offsets kadm.Offsets
		for _, p := range positions {
			offsets.Add(kadm.Offset{Topic: p.name, Partition: p.number, At: p.next, LeaderEpoch: p.epoch})
		}
		if err := g.source.admin.CommitAllOffsets(ctx, clientName+"."+sink, offsets); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		g.has(sink, positions)
	}
	g.log(first)
}

// has records the position that a group has.
func (g *groups) has(sink string, positions map[partition]position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.had[sink] == nil {
		g.had[sink] = make(map[partition]written)
	}
	for part, p := range positions {
		g.had[sink][part] = written{p, time.Now()}
	}
}

// log warns of a failure once, until it changes.
func (g *groups) log(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != g.failed {
		g.source.config.Logger.Warn("the positions of the sinks cannot be copied into consumer groups, which only show them; grant this client READ on groups that begin with waybill.", "error", err)
	}
	g.failed = text
}

// close writes the remaining positions.
func (g *groups) close() {
	g.mu.Lock()
	g.closed = true
	stopped := g.timer != nil && g.timer.Stop()
	g.mu.Unlock()
	if stopped {
		g.write()
		g.work.Done()
	}
	g.work.Wait()
}
