package program

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// judges judge what to alert of in the open databases of a fleet.
type judges struct {
	log *slog.Logger

	mu   sync.Mutex
	open map[string]*judged // by the database's name
}

type judged struct {
	*alerts.Judge
	trouble *pace.Trouble
	due     time.Time // of the next look
}

const (
	// judgePause is the pause between two rounds of looks.
	judgePause = time.Second
	// judgesAtOnce bounds the connections that they use.
	judgesAtOnce = 4
)

// add adds the judge of a database that was opened. close also removes it.
func (all *judges) add(name string, judge *alerts.Judge, release func()) (close func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	log := all.log.With("database", name)
	all.open[name] = &judged{Judge: judge, trouble: pace.NewTrouble(log, "judging what to alert of", time.Minute)}
	return func() {
		all.mu.Lock()
		delete(all.open, name)
		all.mu.Unlock()
		release()
	}
}

// run looks at all databases, again and again, until ctx is done. One that sleeps is left out if the last look at it
// found nothing.
func (all *judges) run(ctx context.Context, databases func() []fleet.Status) error {
	for pace.Sleep(ctx, judgePause) {
		var round errgroup.Group
		round.SetLimit(judgesAtOnce)
		for _, d := range databases() {
			all.mu.Lock()
			j := all.open[d.Database]
			all.mu.Unlock()
			if j == nil || time.Now().Before(j.due) || d.State == fleet.StateAsleep && j.Rests(d.Since) {
				continue
			}
			round.Go(func() error {
				wait, err := j.Look(ctx)
				switch {
				case err == nil:
					j.trouble.Over()
				case ctx.Err() == nil:
					wait = j.trouble.Met(err)
				}
				j.due = time.Now().Add(wait)
				return nil
			})
		}
		_ = round.Wait() // there are no errors
	}
	return nil
}
