package access

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// failuresAtOnce is how many logins of an address may fail at once, and failurePause after
	// how long one more may.
	failuresAtOnce = 10
	failurePause   = 6 * time.Second
	// maxAddresses bounds how many addresses are remembered.
	maxAddresses = 10_000
)

// attempts bounds how often the logins of an address may fail. Addresses of IPv6 count by their
// network of 64 bits, which is what one customer of a provider has.
type attempts struct {
	mu   sync.Mutex
	from map[netip.Prefix]*attempt
}

// attempt is what is known of an address.
type attempt struct {
	// mu is held while a secret is compared: so guesses that are sent at once count one by one.
	mu     sync.Mutex
	failed *rate.Limiter
}

func newAttempts() *attempts { return &attempts{from: make(map[netip.Prefix]*attempt)} }

// try returns what check returns, unless too many have failed: then check is not called.
func (a *attempts) try(address netip.Addr, check func() (User, error)) (User, error) {
	of := a.of(address)
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.failed.Tokens() < 1 {
		return User{}, &refusal{status: http.StatusTooManyRequests, text: "too many logins from this address have failed: wait", after: failurePause, quiet: true}
	}
	user, err := check()
	if _, refused := errors.AsType[*refusal](err); refused { // and not given up by the client
		of.failed.Allow()
	}
	return user, err
}

func (a *attempts) of(address netip.Addr) *attempt {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits)
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.from[network]
	if of == nil {
		if len(a.from) >= maxAddresses {
			a.forget()
		}
		of = &attempt{failed: rate.NewLimiter(rate.Every(failurePause), failuresAtOnce)}
		a.from[network] = of
	}
	return of
}

// forget drops the addresses that have not failed lately, or all if each has.
func (a *attempts) forget() {
	for network, of := range a.from {
		if of.failed.Tokens() >= failuresAtOnce {
			delete(a.from, network)
		}
	}
	if len(a.from) >= maxAddresses {
		clear(a.from)
	}
}
