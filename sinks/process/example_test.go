package process_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/process"
)

// A shell script that accepts everything. Normally the engine calls Deliver.
func Example() {
	const script = `
		echo '{"line":"hello","version":1}'
		read -r hello
		while read -r line; do
			number=${line#*'"delivery":'}
			echo "{\"line\":\"answer\",\"delivery\":${number%%,*},\"outcome\":\"ok\",\"receipt\":\"taken\"}"
		done`
	sink, err := process.New(sinks.Instance{Name: "script"}, process.Config{Command: []string{"sh", "-c", script}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := sink.Open(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(ctx)

	receipt, err := sink.Deliver(ctx, &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         "0198c0de-0000-7000-8000-000000000001",
			Type:       "order.placed",
			Version:    1,
			OccurredOn: time.Now(),
			Payload:    []byte(`{"order":42}`),
		},
		Sink:    "script",
		Attempt: 1,
	})
	fmt.Println("receipt:", receipt, err)
	// Output:
	// receipt: taken <nil>
}

// Build returns all mistakes of a configuration at once.
func ExampleKind() {
	_, err := process.Kind().Build(sinks.Instance{Name: "ledger"}, func(config any) error {
		return yaml.Unmarshal([]byte("{grace: -1s}"), config)
	})
	fmt.Println(err)
	// Output:
	// command: is missing; give the program and its arguments, such as [python3, handler.py]
	// grace: -1s is negative; leave it out for 5s
}

// A program that may be process 1 of a container reaps orphans.
func ExampleReapOrphans() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if os.Getpid() == 1 {
		go process.ReapOrphans(ctx)
	}
	fmt.Println("the program runs its forwarder")
	// Output:
	// the program runs its forwarder
}
