package observe

import (
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// sampleTimeout limits one sample.
const sampleTimeout = 5 * time.Second

// sample is the last successful sample.
type sample struct {
	store.Sample
	at   time.Time // zero before the first sample
	took time.Duration
	// failing says that samples have failed since then.
	failing bool
}

// age returns how much the lag of sinks has grown since the sample: 0 unless samples fail, and the
// age of the monitor before the first sample.
func (s *sample) age(began time.Time) time.Duration {
	switch {
	case s.at.IsZero():
		return time.Since(began)
	case s.failing:
		return time.Since(s.at)
	}
	return 0
}

// Run samples the store of the watched forwarder, at once and then in each interval, until ctx is
// done. It logs errors, and the age of the last sample shows them. Call it once.
func (m *Monitor) Run(ctx context.Context) {
	timer := time.NewTicker(m.config.Interval)
	defer timer.Stop()
	for {
		m.takeSample(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}
	}
}

func (m *Monitor) takeSample(ctx context.Context) {
	target, _ := m.watched()
	switch {
	case target == nil:
	case target.Databases != nil:
		m.takeSamples(ctx, target)
	case target.Store != nil:
		m.sampleOne(ctx, target, "", target.Store)
	}
}

// sampledTogether is how many databases are sampled at once.
const sampledTogether = 4

// takeSamples samples all open databases. It does not wake a resting database that was sampled since
// it began to rest, because nothing has changed there.
func (m *Monitor) takeSamples(ctx context.Context, target *Target) {
	databases := target.Databases()
	known := make(map[string]bool, len(databases))
	work := errgroup.Group{}
	work.SetLimit(sampledTogether)
	for _, d := range databases {
		known[d.Name] = true
		if d.Store == nil || d.Rests && m.sampledSince(d.Name, d.Since) {
			continue
		}
		work.Go(func() error { m.sampleOne(ctx, target, d.Name, d.Store); return nil })
	}
	_ = work.Wait() // there are no errors
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.samples, func(name string, _ *sample) bool { return !known[name] })
}

func (m *Monitor) sampledSince(database string, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.samples[database]
	return s != nil && s.at.After(since)
}

func (m *Monitor) sampleOne(ctx context.Context, target *Target, database string, from store.Sampler) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	types := make(map[string]notification.TypeFilter)
	for _, s := range target.Forwarder.Figures().Sinks {
		types[s.Sink] = s.Types
	}
	began := time.Now()
	taken, err := from.Sample(ctx, store.SampleQuery{Types: types})
	if ctx.Err() == context.Canceled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.samples[database]
	if s == nil {
		s = &sample{}
		m.samples[database] = s
	}
	log := m.config.Logger
	if database != "" {
		log = log.With("database", database)
	}
	switch {
	case err != nil && !s.failing:
		log.Warn("sampling figures for metrics failed, trying again", "error", err)
	case err == nil && s.failing:
		log.Info("sampling figures for metrics works again")
	}
	if s.failing = err != nil; err == nil {
		*s = sample{Sample: taken, at: time.Now(), took: time.Since(began)}
	}
	close(m.sampled)
	m.sampled = make(chan struct{})
}
