package webhooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// Limit sets how many endpoints a checkpoint reads, and how many notifications it publishes for them.
func (s *Sink) Limit(endpoints, published int) {
	s.limits.endpoints, s.limits.published = endpoints, published
}

// LimitThinking sets how long the conditions of a tenant may take at once.
func (s *Sink) LimitThinking(d time.Duration) { s.limits.thinking = d }

// Lookup reads endpoints as the sink does.
type Lookup struct{ r *residence }

func NewLookup(t testing.TB, s Store) *Lookup {
	t.Helper()
	v, err := newVault(nil)
	require.NoError(t, err)
	return &Lookup{&residence{store: s, vault: v, known: make(map[string]*known), expected: make(map[string]bool)}}
}

// Read reads the enabled endpoints of tenants, and returns their number.
func (l *Lookup) Read(t testing.TB, tenants []string) int {
	t.Helper()
	asked := time.Now()
	rows, err := l.r.store.Endpoints(t.Context(), nil, store.EndpointQuery{Tenants: tenants, Enabled: true})
	require.NoError(t, err)
	return len(l.r.learn(rows, asked, nil))
}
