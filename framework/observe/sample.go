package observe

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// sampleTimeout bounds one sample.
const sampleTimeout = 5 * time.Second

// sample is the last one that was taken.
type sample struct {
	store.Sample
	at   time.Time // zero: none was
	took time.Duration
	// failing says that a later one was tried, and failed.
	failing bool
}

// age is what a sink's lag has grown by since the sample: nothing while samples are taken.
// Before the first one it is the age of the monitor.
func (s *sample) age(began time.Time) time.Duration {
	switch {
	case s.at.IsZero():
		return time.Since(began)
	case s.failing:
		return time.Since(s.at)
	}
	return 0
}

// Run samples the store of the forwarder that is watched, at once and then at each interval,
// until ctx is done. Errors are logged and counted as age. It is called once.
func (m *Monitor) Run(ctx context.Context) {
	timer := time.NewTicker(m.config.Interval)
	defer timer.Stop()
	for {
		m.takeSample(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
		case <-timer.C:
		}
	}
}

func (m *Monitor) takeSample(ctx context.Context) {
	target, _ := m.watched()
	if target == nil || target.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	types := make(map[string]notification.TypeFilter)
	for _, s := range target.Forwarder.Figures().Sinks {
		types[s.Sink] = s.Types
	}
	began := time.Now()
	taken, err := target.Store.Sample(ctx, store.SampleQuery{Types: types})
	if ctx.Err() == context.Canceled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil && !m.sample.failing:
		m.config.Logger.Warn("sampling figures for metrics failed, trying again", "error", err)
	case err == nil && m.sample.failing:
		m.config.Logger.Info("sampling figures for metrics works again")
	}
	if m.sample.failing = err != nil; err == nil {
		m.sample = sample{Sample: taken, at: time.Now(), took: time.Since(began)}
	}
	close(m.sampled)
	m.sampled = make(chan struct{})
}
