package sinktest_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// settings are a kind's configuration. The variable defaults sets its defaults.
type settings struct {
	Address string        `yaml:"address" doc:"Where it is"`
	Timeout time.Duration `yaml:"timeout" doc:"How long it may take"`
	Batch   struct {
		Size int `yaml:"size" doc:"How many at once"`
	} `yaml:"batch" doc:"Limits of batches"`
	More []string `yaml:"more" doc:"Further places"`
	Own  *int     `yaml:"-"`
}

func (s *settings) SetDefaults() { defaults(s) }

// defaults sets the defaults of the kind under test.
var defaults = setZeroFields

func setZeroFields(s *settings) {
	if s.Timeout == 0 {
		s.Timeout = time.Second
	}
	if s.Batch.Size == 0 {
		s.Batch.Size = 10
	}
}

var kind = sinks.NewKind("test", "", func(_ sinks.Instance, s settings) (sinks.Sink, error) {
	if s.Address == "" {
		return nil, errors.New("address: is missing")
	}
	return new(memory), nil
})

// wrongDefaults break one rule each, and name the case that must catch it.
var wrongDefaults = map[string]struct {
	caughtBy string
	set      func(*settings)
}{
	"one overwrites": {"defaults keep the fields that are set", func(s *settings) { s.Timeout = time.Second }},
	"one overwrites if another is zero": {"defaults keep a field that is set alone", func(s *settings) {
		if s.Batch.Size == 0 {
			s.Timeout = time.Second
		}
	}},
	"one grows": {"setting defaults twice has no further effect", func(s *settings) {
		if len(s.More) == 0 || s.Address == "desk:1" {
			s.More = append(s.More, "one")
		}
	}},
}

func TestACorrectKindPasses(t *testing.T) {
	sinktest.RunKind(t, kind, settings{Address: "desk:1"})
}

func TestWrongDefaultsAreCaught(t *testing.T) {
	if name := os.Getenv(wrongVariable); name != "" {
		defaults = wrongDefaults[name].set
		sinktest.RunKind(t, kind, settings{Address: "desk:1"})
		return
	}
	for name, w := range wrongDefaults {
		t.Run(name, func(t *testing.T) { requireCaught(t, name, "TestWrongDefaultsAreCaught", w.caughtBy) })
	}
}

func TestAnUndeclaredRequiredFieldIsCaught(t *testing.T) {
	const test = "TestAnUndeclaredRequiredFieldIsCaught"
	if os.Getenv(wrongVariable) == "" {
		requireCaught(t, "required", test, "required fields are enough")
		return
	}
	sinktest.RunKind(t, kind, settings{})
}
