package crashtest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"
)

// Config says what is tested and how hard. Forwarder is required; the zero value
// of every other field takes the default that it names.
type Config struct {
	// Forwarder makes the command of one forwarder, which Run starts: again after
	// each kill. It forwards every notification of the outbox with the default
	// prefix at dsn, a postgres:// or mysql:// URL, to endpoint, an http:// URL: the payload as
	// the body of a POST, the id in the header Waybill-Id, one notification a
	// request. SIGTERM stops it in good order, with code 0.
	//
	// It should retry without giving up and soon (50 ms, at most 1 s), since a dead
	// letter counts as lost; and have more than one lane, so that forwarders share
	// the work.
	Forwarder func(dsn, endpoint string) *exec.Cmd
	// Upstream is for forwarders that read what another stage makes of the outbox, at least once: how often
	// each notification is in that. The calm lasts until all of them were delivered, and as many
	// repeats need no fault. Default nil: they read the outbox, which has each once.
	Upstream func(ctx context.Context) (map[string]int, error)

	// Database is what the outbox is in; default PostgreSQL.
	Database Database
	// Forwarders run at once; default 2, which is the least.
	Forwarders int
	// Lease and Threshold are what the forwarders are configured with: how long a
	// lane stays with one that is not heard of (default 15 s), and most deliveries
	// in flight (default 16). Faults last as long as it takes to matter, and repeats
	// are judged, by them.
	Lease     time.Duration
	Threshold int
	// Checkpoint is how long a delivery that was made may stay unwritten while
	// nothing is wrong: default 1 s, which is a hundred times what it takes on an
	// idle machine.
	Checkpoint time.Duration

	// Publishers are processes that write with four connections each; default 3.
	Publishers int
	// Keys is among how many keys they choose, beside none; default 8. Fewer wait
	// more for each other.
	Keys int
	// Rate is about how many transactions they begin in a second; default 100.
	Rate int

	// Duration is how long harm is done; default 20 s. The fault that has begun is
	// ended, then comes the calm.
	Duration time.Duration
	// Faults are the kinds of fault to choose from; default all of them. Fewer of
	// them help to find which one matters.
	Faults []Kind
	// Gap is about how long nothing happens between two faults; default 1 s.
	Gap time.Duration
	// Calm bounds the wait for the end of the backlog; default 1 min.
	Calm time.Duration
	// Seed chooses faults, their order, victims and lengths: the same ones for the
	// same seed and Config. When exactly they meet which statement is left to the
	// machine. 0 takes one at random.
	Seed uint64
	// Log gets one line for each fault as it begins; default: nothing is written.
	Log io.Writer
}

func (c Config) withDefaults() (Config, error) {
	if !canPublish.Load() {
		return c, ErrNoPublisher
	}
	setDefault(&c.Database, PostgreSQL)
	setDefault(&c.Forwarders, 2)
	setDefault(&c.Lease, 15*time.Second)
	setDefault(&c.Threshold, 16)
	setDefault(&c.Checkpoint, time.Second)
	setDefault(&c.Publishers, 3)
	setDefault(&c.Keys, 8)
	setDefault(&c.Rate, 100)
	setDefault(&c.Duration, 20*time.Second)
	setDefault(&c.Gap, time.Second)
	setDefault(&c.Calm, time.Minute)
	setDefault(&c.Seed, rand.Uint64())
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
	case c.Forwarders < 2:
		return c, fmt.Errorf("%w: Forwarders is %d: use at least 2", ErrConfig, c.Forwarders)
	case min(c.Threshold, c.Publishers, c.Keys, c.Rate) < 1:
		return c, fmt.Errorf("%w: Threshold, Publishers, Keys and Rate are %d, %d, %d and %d: use at least 1", ErrConfig, c.Threshold, c.Publishers, c.Keys, c.Rate)
	case min(c.Lease, c.Checkpoint, c.Duration, c.Gap, c.Calm) <= 0:
		return c, fmt.Errorf("%w: a duration is negative", ErrConfig)
	}
	return c, nil
}

func setDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}
