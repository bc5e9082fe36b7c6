package observe

import "time"

// SetPatience sets for how long a loop may not turn.
func (m *Monitor) SetPatience(d time.Duration) { m.patience = d }

// Sampled is closed with the next sample, or the next that fails.
func (m *Monitor) Sampled() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sampled
}
