package privacy

import (
	"sync"
	"time"
)

// maxCached is how many entries a cache has at most, in each of its generations.
const maxCached = 10_000

// cache remembers values for at most a time. It is safe for concurrent use.
type cache[V any] struct {
	lifetime time.Duration // 0 remembers nothing

	mu       sync.Mutex
	since    time.Time // when the new generation began
	new, old map[string]V
}

func (c *cache[V]) get(name string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	v, found := c.new[name]
	if !found {
		v, found = c.old[name]
	}
	return v, found
}

func (c *cache[V]) put(name string, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if c.lifetime > 0 {
		c.new[name] = v
	}
}

// turn begins a new generation after half of the lifetime, so that no value is older than it.
func (c *cache[V]) turn() {
	switch age := time.Since(c.since); {
	case c.new == nil || age >= c.lifetime:
		c.new, c.old, c.since = make(map[string]V), nil, time.Now()
	case age >= c.lifetime/2: // not from now on: the older one ends with its lifetime
		c.new, c.old, c.since = make(map[string]V), c.new, c.since.Add(c.lifetime/2)
	case len(c.new) >= maxCached:
		c.new, c.old, c.since = make(map[string]V), c.new, time.Now()
	}
}
