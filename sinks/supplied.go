package sinks

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
)

// ErrAbsent means that the configuration has a sink whose code this program does not
// supply.
var ErrAbsent = errors.New("this program does not supply it")

// GoKind is the kind "go". The program supplies a constructor for each sink, under the
// sink's name in the configuration, which has all other settings. A constructor runs
// whenever a configuration is read, and must not open anything. A sink whose name has no
// constructor is [Absent].
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

// Absent is a sink whose code another program supplies. This program can read a
// configuration with it, and show the sink's deliveries, but cannot make any.
type Absent string

// Deliver returns ErrAbsent as [Unavailable].
func (a Absent) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", Unavailable(fmt.Errorf("sink %s: %w", string(a), ErrAbsent))
}
