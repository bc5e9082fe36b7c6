package observe

import "time"

// SetPatience sets how long a loop may go without a turn.
func (m *Monitor) SetPatience(d time.Duration) { m.patience = d }

// Sampled returns a channel that is closed after the next sample, even if it fails.
func (m *Monitor) Sampled() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sampled
}
