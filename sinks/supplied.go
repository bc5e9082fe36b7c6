package sinks

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
)

// ErrAbsent: the configuration names a sink that the program is to supply, and this one
// does not.
var ErrAbsent = errors.New("this program does not supply it")

// GoKind is the kind "go": sinks that the program makes itself, by the names that they
// have in the configuration, which then says all the rest about them. Each constructor
// runs whenever a configuration is read, and opens nothing. A name without one is an
// [Absent] sink.
func GoKind(supplied map[string]func(Instance) (Sink, error)) Kind {
	return NewKind("go", "a sink that the program supplies under the sink's name",
		func(in Instance, _ struct{}) (Sink, error) {
			build, ok := supplied[in.Name]
			if !ok {
				return Absent(in.Name), nil
			}
			return build(in)
		})
}

// Absent stands for a sink of that name which another program supplies. A program can
// look at a configuration with one and at the sink's deliveries; it can make none.
type Absent string

// Deliver is unavailable, with ErrAbsent.
func (a Absent) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", Unavailable(fmt.Errorf("sink %s: %w", string(a), ErrAbsent))
}
