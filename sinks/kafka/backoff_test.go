package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAPauseIsSharedByAllWhoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		life, end := context.WithCancel(t.Context())
		b := backoff{life: life}
		assert.Zero(t, b.pause(0, retries), "the first try")
		assert.Equal(t, []time.Duration{ms, 8 * ms, 64 * ms, 512 * ms},
			[]time.Duration{b.pause(1, retries), b.pause(2, retries), b.pause(3, retries), b.pause(4, retries)})

		time.Sleep(100 * ms)
		assert.Equal(t, 412*ms, b.pause(4, retries), "the rest of it")
		time.Sleep(412 * ms)
		for range 10_000 {
			assert.Zero(t, b.pause(4, retries), "they had it")
		}
		time.Sleep(512 * ms)
		assert.Equal(t, 512*ms, b.pause(4, retries))

		end()
		assert.Zero(t, b.pause(4, retries), "the connections are cut")
	})
}
