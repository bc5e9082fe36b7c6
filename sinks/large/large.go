// Package large stores bodies that are too large for a message in an object store, and sends a pointer instead: a
// claim check, as in Amazon's extended client libraries.
package large

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/sinks"
)

// AttributeSize is the name of the attribute or header of a message with a pointer, by which Amazon's extended clients
// recognize it. Its value is the size of the stored body in bytes, in decimal.
const AttributeSize = "ExtendedPayloadSize"

// Config has the settings of a sink, which are below "large". The zero value stores nothing.
type Config struct {
	Store string `yaml:"store" doc:"Object store for bodies that are too large for a message, such as s3://bucket/prefix or gs://bucket/prefix. The message then has a pointer to the body. Rules of the bucket must delete the objects, which the sink never does. Default: such notifications are dead"`
	Above string `yaml:"above" doc:"Size above which a body is stored, such as 200KiB; 0 stores every body. Units are B, KiB and MiB. Default: the largest one that the destination accepts"`
}

// Enabled reports whether bodies are stored.
func (c Config) Enabled() bool { return c.Store != "" }

// Validate returns all mistakes, joined. limit is the size of the largest body that the destination accepts.
func (c Config) Validate(limit int) error {
	if !c.Enabled() {
		if c.Above != "" {
			return errors.New("large.above: is for large.store, which is missing")
		}
		return nil
	}
	_, wrongAddress := c.address()
	_, wrongSize := c.above(limit)
	return errors.Join(wrongAddress, wrongSize)
}

var size = regexp.MustCompile(`^(\d{1,9}) ?(B|KiB|MiB)?$`)

func (c Config) above(limit int) (int, error) {
	if c.Above == "" {
		return limit, nil
	}
	parts := size.FindStringSubmatch(c.Above)
	if parts == nil {
		return 0, fmt.Errorf("large.above: %q is not a size; write one such as 200KiB", c.Above)
	}
	n, _ := strconv.Atoi(parts[1]) // it has at most nine digits
	n *= map[string]int{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[parts[2]]
	if n > limit {
		return 0, fmt.Errorf("large.above: %s is more than the %d bytes that the destination accepts", c.Above, limit)
	}
	return n, nil
}

func (c Config) address() (*url.URL, error) {
	address, err := url.Parse(c.Store)
	if err != nil || address.Scheme == "" || address.Host == "" || address.User != nil {
		return nil, fmt.Errorf("large.store: %q is not the address of a bucket; write one such as s3://bucket/prefix", c.Store)
	}
	return address, nil
}

// Describe adds the header of a pointer to the description of a channel.
func (c Config) Describe(its *sinks.Channel) {
	if c.Enabled() {
		its.Headers = append(its.Headers, sinks.Header{Name: AttributeSize, Text: "Size of the body, which is stored at the place that the message names instead.", Optional: true})
	}
}

// Bodies stores the large bodies of a sink. nil stores none. Its methods are safe for concurrent use.
type Bodies struct {
	store sinks.ObjectStore
	sink  string
	above int
}

// Open opens the store; nil if the configuration has none. limit is that of Validate, and the default of Above.
func (c Config) Open(in sinks.Instance, limit int) (*Bodies, error) {
	if !c.Enabled() {
		return nil, nil
	}
	if in.Name == "" {
		return nil, errors.New("large.store: the sink has no name, of which the names of its objects are made; set sinks.Instance.Name")
	}
	address, wrongAddress := c.address()
	above, wrongSize := c.above(limit)
	if err := errors.Join(wrongAddress, wrongSize); err != nil {
		return nil, err
	}
	open, known := in.Stores[address.Scheme]
	if !known {
		elsewhere := ""
		if address.Scheme == "s3" || address.Scheme == "gs" {
			elsewhere = "; waybill-all has s3 and gs, and your own program adds them with program.Stores"
		}
		return nil, fmt.Errorf("large.store: this program has no store for %s://; it has %s%s",
			address.Scheme, cmp.Or(strings.Join(slices.Sorted(maps.Keys(in.Stores)), ", "), "none"), elsewhere)
	}
	store, err := open(in, address)
	if err != nil {
		return nil, fmt.Errorf("large.store: %w", err)
	}
	return &Bodies{store, in.Name, above}, nil
}

// IsLarge reports whether a body must be stored.
func (b *Bodies) IsLarge(body []byte) bool { return b != nil && len(body) > b.above }

// Put stores the body of a notification, and returns the pointer that is sent instead, as [sinks.ObjectStore] does. A
// store that is down, or takes all the time, is [sinks.Apart].
func (b *Bodies) Put(ctx context.Context, id string, body []byte) (pointer []byte, err error) {
	pointer, err = b.store.Put(ctx, objectName(b.sink, id), body)
	if err == nil {
		return pointer, nil
	}
	err = fmt.Errorf("large body: %w", err)
	switch class, _ := sinks.Classify(err); {
	case class == sinks.ClassUnavailable, class == sinks.ClassThrottled, errors.Is(err, context.DeadlineExceeded):
		return nil, sinks.Apart(err)
	}
	return nil, err
}

// CheckHealth checks the store; nil has none.
func (b *Bodies) CheckHealth(ctx context.Context) error {
	if b == nil {
		return nil
	}
	if err := b.store.CheckHealth(ctx); err != nil {
		return fmt.Errorf("large.store: %w", err)
	}
	return nil
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$`)

// objectName returns the name of a notification's object. An id can have characters that the name of an object cannot.
func objectName(sink, id string) string {
	if !plain.MatchString(id) {
		sum := sha256.Sum256([]byte(id))
		id = "sha256-" + hex.EncodeToString(sum[:])
	}
	return sink + "/" + id
}
