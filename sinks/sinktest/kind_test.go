package sinktest_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// settings are a kind's configuration, whose defaults are set by a function of each test.
type settings struct {
	Address string
	Timeout time.Duration
	Batch   struct{ Size int }
	More    []string
	Own     *int `yaml:"-"`
}

func (s *settings) SetDefaults() { defaults(s) }

// defaults are those of the kind under test.
var defaults = keepToZero

func keepToZero(s *settings) {
	if s.Timeout == 0 {
		s.Timeout = time.Second
	}
	if s.Batch.Size == 0 {
		s.Batch.Size = 10
	}
}

var settled = sinks.NewKind("settled", "", func(_ sinks.Instance, s settings) (sinks.Sink, error) {
	if s.Address == "" {
		return nil, errors.New("address: is missing")
	}
	return new(memory), nil
})

// wrongDefaults break one clause each, the one that must catch them.
var wrongDefaults = map[string]struct {
	caughtBy string
	set      func(*settings)
}{
	"one overwrites": {"defaults change nothing that is given", func(s *settings) { s.Timeout = time.Second }},
	"one overwrites for lack of another": {"defaults change no field that is given alone", func(s *settings) {
		if s.Batch.Size == 0 {
			s.Timeout = time.Second
		}
	}},
	"one grows": {"defaults are the same twice", func(s *settings) {
		if len(s.More) == 0 || s.Address == "desk:1" {
			s.More = append(s.More, "one")
		}
	}},
}

func TestAKindThatKeepsItsPromisesPasses(t *testing.T) {
	sinktest.RunKind(t, settled, settings{Address: "desk:1"})
}

func TestWrongDefaultsAreCaught(t *testing.T) {
	if name := os.Getenv(wrongVariable); name != "" {
		defaults = wrongDefaults[name].set
		sinktest.RunKind(t, settled, settings{Address: "desk:1"})
		return
	}
	for name, w := range wrongDefaults {
		t.Run(name, func(t *testing.T) { requireCaught(t, name, "TestWrongDefaultsAreCaught", w.caughtBy) })
	}
}

func TestARequiredFieldThatIsNotSaidToBeIsCaught(t *testing.T) {
	const test = "TestARequiredFieldThatIsNotSaidToBeIsCaught"
	if os.Getenv(wrongVariable) == "" {
		requireCaught(t, "required", test, "required fields are enough")
		return
	}
	sinktest.RunKind(t, settled, settings{})
}
