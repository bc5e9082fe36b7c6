package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"
)

// Config says what to test and how hard. Forwarder is required; the zero value of every other
// field means its default.
type Config struct {
	// Forwarder returns the command of a forwarder. Run starts it, and again after each kill. It
	// forwards all notifications of the outbox with the default prefix at dsn (a postgres:// or
	// mysql:// URL) to endpoint (an http:// URL): one POST each, with the payload as its body and
	// the id in the header Waybill-Id. After SIGTERM it stops gracefully, with exit code 0; in
	// its first seconds it need not handle the signal yet.
	//
	// It should retry without a limit and soon (50 ms, at most 1 s), since a dead delivery counts
	// as lost. It should have more than one lane, so that forwarders share the work.
	Forwarder func(dsn, endpoint string) *exec.Cmd
	// Upstream, if set, is for forwarders that read not the outbox but the output of another stage,
	// which copies it at least once. It returns how often each notification is in that output. The
	// calm lasts until all of those are delivered, and a repeat that the stage made needs no fault.
	// Publishers then leave out types that Publish refuses, and times that no record of Kafka can
	// have, before 1677 and after 2262.
	// Default nil: the forwarders read the outbox.
	Upstream func(ctx context.Context) (map[string]int, error)

	// Database is the server of the outbox; default PostgreSQL.
	Database Database
	// Lease and Threshold are as in the forwarders' configuration: how long a forwarder keeps a
	// lane without renewing its lease (default 15 s), and how many deliveries can be in flight
	// (default 16). They determine how long faults last and how Run judges repeats.
	Lease     time.Duration
	Threshold int
	// Checkpoint is how long a delivery that was made can remain unrecorded while there is no
	// fault; default 1 s, which is a hundred times what it takes on an idle machine.
	Checkpoint time.Duration

	// Rate is about how many transactions the publishers begin per second; default 100.
	Rate int

	// Duration is how long Run causes faults; default 20 s. Then it ends the last fault, and the
	// calm begins.
	Duration time.Duration
	// Faults are the kinds of fault to choose from; default all. A shorter list helps to find
	// out which kind matters.
	Faults []Kind
	// Gap is about how long the pause between two faults is; default 1 s.
	Gap time.Duration
	// Calm bounds the wait until the backlog is empty; default 1 min.
	Calm time.Duration
	// Seed determines the faults, their order, victims and lengths: they are the same for the
	// same seed and Config. Which statement they interrupt depends on the machine. 0 means a
	// random seed.
	Seed uint64
	// Log gets one line when a fault begins; nil discards them.
	Log io.Writer
}

func (c Config) withDefaults() (Config, error) {
	if !canPublish.Load() {
		return c, fmt.Errorf("%w: RunPublisher was not called: call it first in TestMain or main", ErrConfig)
	}
	c.Database = cmp.Or(c.Database, PostgreSQL)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Threshold = cmp.Or(c.Threshold, 16)
	c.Checkpoint = cmp.Or(c.Checkpoint, time.Second)
	c.Rate = cmp.Or(c.Rate, 100)
	c.Duration = cmp.Or(c.Duration, 20*time.Second)
	c.Gap = cmp.Or(c.Gap, time.Second)
	c.Calm = cmp.Or(c.Calm, time.Minute)
	c.Seed = cmp.Or(c.Seed, rand.Uint64())
	if c.Log == nil {
		c.Log = io.Discard
	}
	if len(c.Faults) == 0 {
		c.Faults = kinds
	}
	for _, kind := range c.Faults {
		if !slices.Contains(kinds, kind) {
			return c, fmt.Errorf("%w: Faults has %q: use some of %q", ErrConfig, kind, kinds)
		}
	}
	switch _, known := dialects[c.Database]; {
	case !known:
		return c, fmt.Errorf("%w: Database is %q: use %q or %q", ErrConfig, c.Database, PostgreSQL, MySQL)
	case c.Forwarder == nil:
		return c, fmt.Errorf("%w: Forwarder is missing", ErrConfig)
	case min(c.Threshold, c.Rate) < 1:
		return c, fmt.Errorf("%w: Threshold and Rate are %d and %d: use at least 1", ErrConfig, c.Threshold, c.Rate)
	case min(c.Lease, c.Checkpoint, c.Duration, c.Gap, c.Calm) <= 0:
		return c, fmt.Errorf("%w: a duration is negative", ErrConfig)
	}
	return c, nil
}
