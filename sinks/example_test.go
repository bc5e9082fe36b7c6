package sinks_test

import (
	"context"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// A sink prints notifications. Normally the engine calls Deliver.
func ExampleFunc() {
	printer := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		fmt.Println(d.Type, string(d.Payload))
		return "printed", nil
	})

	receipt, err := printer.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{ID: "1", Type: "order.placed", Version: 1, Payload: []byte(`{"order":17}`)},
	})
	fmt.Println(receipt, err)
	// Output:
	// order.placed {"order":17}
	// printed <nil>
}

// Pager is the configuration of a kind.
type Pager struct {
	Room  string `yaml:"room" doc:"Room of the messages. Required"`
	Token string `yaml:"token" secret:"true" doc:"Token of the account"`
}

func (p *Pager) Validate() error {
	if p.Room == "" {
		return errors.New("room: is missing")
	}
	return nil
}

// A kind makes sinks from the settings of the configuration file. With program.Kinds(pager), the
// waybill command has this kind.
func ExampleNewKind() {
	pager := sinks.NewKind("pager", "a message in a room", func(_ sinks.Instance, c Pager) (sinks.Sink, error) {
		return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			return notification.Receipt("sent to " + c.Room), nil
		}), nil
	})
	build := func(settings string) (sinks.Sink, error) {
		return pager.Build(sinks.Instance{Name: "alarm"}, func(config any) error {
			return yaml.Unmarshal([]byte(settings), config)
		})
	}

	sink, err := build("{room: warehouse, token: secret}")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.Deliver(context.Background(), &notification.Delivery{}))
	_, err = build("{token: secret}")
	fmt.Println(err)
	// Output:
	// sent to warehouse <nil>
	// room: is missing
}

// The class of an error decides what the engine does next.
func ExampleClassify() {
	for _, err := range []error{
		sinks.Permanent(errors.New("no such customer")),
		sinks.Unavailable(errors.New("connection refused")),
		fmt.Errorf("pager: %w", sinks.Transient(errors.New("busy"))),
		errors.New("an error without a class"),
	} {
		class, _ := sinks.Classify(err)
		fmt.Println(class)
	}
	// Output:
	// permanent
	// unavailable
	// transient
	// transient
}
