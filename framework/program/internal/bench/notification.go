package bench

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/registry"
)

// Type is the type of the notifications that a bench makes up.
const Type = "waybill.bench"

// Sample is a notification of the user's, which is published again and again in place of
// made-up ones, each time with an id and a key of the bench.
type Sample struct {
	Type    string
	Version int
	Payload []byte // JSON; nil is no sample
}

// sample is the user's, or the made-up one without its payload.
func (c Config) sample() Sample {
	if c.Sample.Payload == nil {
		return Sample{Type: Type, Version: 1}
	}
	return c.Sample
}

// happened is what a bench publishes.
type happened struct {
	n       int
	payload json.RawMessage
}

func (h happened) MarshalJSON() ([]byte, error) { return h.payload, nil }

// newTypes registers it. Its key is one of so many.
func (c Config) newTypes() (*registry.Registry, error) {
	types, s := registry.New(), c.sample()
	return types, registry.Register[happened](types, s.Type, registry.Version(s.Version), registry.Oldest(s.Version),
		registry.Key(func(h happened) string { return "k" + strconv.Itoa(h.n%c.Keys) }))
}

// notification is number n of a batch, as the publisher takes it.
func (b *bench) notification(named batch, n int) outbox.Item {
	payload := b.config.Sample.Payload
	if payload == nil {
		payload = []byte(`{"n":` + strconv.Itoa(n) + `,"pad":"` + b.config.pad() + `"}`)
	}
	return outbox.With(happened{n, payload}, outbox.ID(named.id(n)))
}

// pad fills a payload to the size that the user wants: what is left beside the
// names, the quotes and a number of six digits.
func (c Config) pad() string {
	return strings.Repeat("x", max(c.PayloadBytes-len(`{"n":123456,"pad":""}`), 0))
}
