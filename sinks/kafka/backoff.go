package kafka

import (
	"context"
	"sync"
	"time"
)

// retries is how often the client sends again what failed for the moment.
const retries = 4

// backoff says how long the client waits before it sends again: 1, 8, 64 and
// 512 ms, and not at all before the first try.
//
// When a partition has no leader sarama takes this pause for each record that it
// gives up, one after the other: with its 100 ms, and thousands of deliveries in
// flight, it took minutes to learn that a broker is gone. So a pause is shared:
// a caller that asks while it lasts waits for its end, and one that asks as soon
// after it does not wait.
type backoff struct {
	life context.Context // after which there is no pause
	mu   sync.Mutex
	ends [retries + 1]time.Time // of the last pause before that retry
}

// pause has the form of sarama's BackoffFunc; it may be called in parallel.
func (b *backoff) pause(retry, _ int) time.Duration {
	if retry < 1 || retry > retries || b.life.Err() != nil {
		return 0
	}
	pause := time.Millisecond << (3 * (retry - 1))
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if end := b.ends[retry]; now.Before(end.Add(pause)) {
		return max(0, end.Sub(now))
	}
	b.ends[retry] = now.Add(pause)
	return pause
}
