package bench

import (
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/registry"
)

// Type is the type of all notifications that a bench publishes.
const Type = "waybill.bench"

// happened is what a bench publishes.
type happened struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// newTypes registers it. Its key is one of so many.
func newTypes(keys int) (*registry.Registry, error) {
	types := registry.New()
	return types, registry.Register[happened](types, Type,
		registry.Key(func(h happened) string { return "k" + strconv.Itoa(h.N%keys) }))
}

// notification is number n of a batch, as the publisher takes it.
func (b *bench) notification(named batch, n int) outbox.Item {
	return outbox.With(happened{N: n, Pad: b.config.pad()}, outbox.ID(named.id(n)))
}

// pad fills a payload to the size that the user wants: what is left beside the
// names, the quotes and a number of six digits.
func (c Config) pad() string {
	return strings.Repeat("x", max(c.PayloadBytes-len(`{"n":123456,"pad":""}`), 0))
}
