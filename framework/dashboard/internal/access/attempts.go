package access

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// addressFailures is how many logins from an address may fail in a row, and userFailures how
	// many of a user, from any addresses. After that, one more may fail every failurePause.
	addressFailures = 10
	userFailures    = 30
	failurePause    = 6 * time.Second
	// maxCounted limits how many addresses, and how many names, are kept.
	maxCounted = 10_000
)

// attempts limits how often logins may fail, for each address and for each user. IPv6 addresses
// count by their /64 network, since a customer of a provider usually has all of it. A name counts
// whether or not there is such a user: otherwise the limit would reveal which names exist.
type attempts struct {
	mu        sync.Mutex
	addresses counts[netip.Prefix]
	users     counts[[sha256.Size]byte] // by the name's hash, since a name may be long
	now       func() time.Time
}

func newAttempts() *attempts {
	return &attempts{
		addresses: counts[netip.Prefix]{most: addressFailures, of: make(map[netip.Prefix]count)},
		users:     counts[[sha256.Size]byte]{most: userFailures, of: make(map[[sha256.Size]byte]count)},
		now:       time.Now,
	}
}

// begin counts a login as failed until it has succeeded: so simultaneous guesses count before any
// of them is compared, and none waits for another. It fails if too many have failed.
func (a *attempts) begin(address netip.Addr, name string) (succeeded func(), err error) {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits)
	user := sha256.Sum256([]byte(name))
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.addresses.full(network, now) || a.users.full(user, now) {
		return nil, &refusal{status: http.StatusTooManyRequests, text: "too many failed logins: try again later", after: failurePause, quiet: true}
	}
	a.addresses.add(network, 1, now)
	a.users.add(user, 1, now)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		now := a.now()
		a.addresses.add(network, -1, now)
		a.users.add(user, -1, now)
	}, nil
}

// counts has the failures of each address or user. One is forgotten every failurePause.
type counts[K comparable] struct {
	most float64
	of   map[K]count
}

type count struct {
	failures float64
	at       time.Time
}

func (c count) left(now time.Time) float64 {
	return max(0, c.failures-now.Sub(c.at).Seconds()/failurePause.Seconds())
}

func (c *counts[K]) full(key K, now time.Time) bool { return c.of[key].left(now)+1 > c.most }

func (c *counts[K]) add(key K, failures float64, now time.Time) {
	left := max(0, c.of[key].left(now)+failures)
	if left == 0 {
		delete(c.of, key)
		return
	}
	if _, known := c.of[key]; !known && len(c.of) >= maxCounted {
		c.forget(now)
	}
	c.of[key] = count{left, now}
}

// forget drops the half of the entries with the fewest failures, so that a flood of names and
// addresses with one failure each does not make others forgotten.
func (c *counts[K]) forget(now time.Time) {
	for least := 1.0; len(c.of) > maxCounted/2; least++ {
		for key, of := range c.of {
			if of.left(now) <= least {
				delete(c.of, key)
			}
		}
	}
}
