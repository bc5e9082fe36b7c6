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
	// failuresAtOnce is how many logins of an address may fail in a row; after that, one more may
	// fail every failurePause.
	failuresAtOnce = 10
	failurePause   = 6 * time.Second
	// maxAddresses limits how many addresses are kept.
	maxAddresses = 10_000
)

// attempts limits how often the logins of an address may fail. IPv6 addresses count by their /64
// network, since a customer of a provider usually has all of it.
type attempts struct {
	mu   sync.Mutex
	from map[netip.Prefix]*attempt
}

// attempt counts the failed logins of an address.
type attempt struct {
	// mu is held while a secret is compared, so that simultaneous guesses count one by one.
	mu     sync.Mutex
	failed *rate.Limiter
}

func newAttempts() *attempts { return &attempts{from: make(map[netip.Prefix]*attempt)} }

// try calls check and returns its result. If too many logins have failed, it does not call check.
func (a *attempts) try(address netip.Addr, check func() (User, error)) (User, error) {
	of := a.of(address)
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.failed.Tokens() < 1 {
		return User{}, &refusal{status: http.StatusTooManyRequests, text: "too many failed logins from this address: try again later", after: failurePause, quiet: true}
	}
	user, err := check()
	if _, refused := errors.AsType[*refusal](err); refused { // other errors mean that the client gave up
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

// forget drops the addresses without recent failures. If that makes no room, it drops all.
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
