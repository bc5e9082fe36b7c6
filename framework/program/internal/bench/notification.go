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

// Sample is the user's notification. The bench publishes copies of it instead of made-up
// notifications, each with an id and a key of the bench.
type Sample struct {
	Type    string
	Version int
	Payload []byte // JSON; nil means that there is no sample
}

// sample returns the user's sample, or the made-up type without a payload.
func (c Config) sample() Sample {
	if c.Sample.Payload == nil {
		return Sample{Type: Type, Version: 1}
	}
	return c.Sample
}

// happened is a notification that a bench publishes.
type happened struct {
	n       int
	payload json.RawMessage
}

func (h happened) MarshalJSON() ([]byte, error) { return h.payload, nil }

// newTypes registers the type of the notifications, with as many different keys as the user wants.
func (c Config) newTypes() (*registry.Registry, error) {
	types, s := registry.New(), c.sample()
	return types, registry.Register[happened](types, s.Type, registry.Version(s.Version), registry.Oldest(s.Version),
		registry.Key(func(h happened) string { return "k" + strconv.Itoa(h.n%c.Keys) }))
}

// notification returns notification n of a batch, for the publisher.
func (b *bench) notification(named batch, n int) outbox.Item {
	payload := b.config.Sample.Payload
	if payload == nil {
		payload = []byte(`{"n":` + strconv.Itoa(n) + `,"pad":"` + b.config.pad() + `"}`)
	}
	return outbox.With(happened{n, payload}, outbox.ID(named.id(n)))
}

// pad returns the text that fills a made-up payload, with a number of six digits, to the size that
// the user wants.
func (c Config) pad() string {
	return strings.Repeat("x", max(c.PayloadBytes-len(`{"n":123456,"pad":""}`), 0))
}
