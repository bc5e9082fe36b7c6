package bench

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
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
		registry.Key(func(h happened) string { return "k" + strconv.Itoa(h.n%keys) }))
}

// notification returns notification n of a batch, for the publisher.
func (b *bench) notification(named batch, n int) outbox.Item {
	payload := b.config.Sample.Payload
	if payload == nil {
		payload = []byte(`{"n":` + strconv.Itoa(n) + `,"pad":"` + pad() + `"}`)
	}
	return outbox.With(happened{n, payload}, outbox.ID(named.id(n)))
}

// pad returns the text that fills a made-up payload, with a number of six digits, to its size.
func pad() string { return strings.Repeat("x", payloadBytes-len(`{"n":123456,"pad":""}`)) }

// batch identifies the notifications of one run: an id consists of the tag and a number from 0.
type batch struct{ tag string }

func (b batch) id(n int) string { return b.tag + strconv.Itoa(n) }

// number is the inverse of id. ok is false for an id that does not belong to the batch.
func (b batch) number(id string) (n int, ok bool) {
	digits, own := strings.CutPrefix(id, b.tag)
	n, err := strconv.Atoi(digits)
	return n, own && err == nil && id == b.id(n)
}

// tally counts the ids of a batch.
type tally struct {
	batch
	*receiver.Tally
}

func newTally(b batch) tally { return tally{b, receiver.NewTally(0, nil)} }

// take counts an id. It returns its number, and whether it is the first with this number.
func (t tally) take(id string) (n int, first bool) {
	n, known := t.number(id)
	return n, t.Note(n, known)
}

// await waits until n different ids are counted. It returns false when ctx is done, or if no id
// arrives for the time stalled. It is not safe for concurrent use.
func (t tally) await(ctx context.Context, n int, stalled time.Duration) bool {
	reached := t.Expect(n)
	last, ticks := t.Count(), 0 // while the machine stalls, there is one tick at most
	ticker := time.NewTicker(max(stalled/20, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-reached:
			return true
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if now := t.Count(); now != last {
				last, ticks = now, 0
			} else if ticks++; ticks > 20 {
				return false
			}
		}
	}
}
