// Own-program is the command line of Waybill with what a shop adds to it: its types, two
// sink kinds, functions, and a sink that it makes in Go. It is a module of its own, as
// yours would be. docs/writing-a-sink.md explains the kind pager.
//
//	cd examples/own-program
//	go run . config check --offline
//	go run . types --offline
//	go run . mail preview order.placed --data order.json
//	go run . migrate && go run . forward
//
// All commands know the kinds and the types: see go run . --help.
package main

import (
	"context"
	"log/slog"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

func main() { program.Main(options()...) }

// options are what the shop adds.
func options() []program.Option {
	return []program.Option{
		program.Types(types()),
		program.Kinds(ledgerKind(), pagerKind()),                  // kind: ledger, kind: pager
		program.Functions("warehouse", function.On(reserveStock)), // kind: function
		program.Sink("audit", newAudit),                           // kind: go
	}
}

// reserveStock gets each order in its newest version, whatever was stored.
func reserveStock(_ context.Context, o OrderPlaced) error {
	slog.Info("stock is reserved", "order", o.Order)
	return nil
}

// newAudit makes a sink that no kind is for.
func newAudit(in sinks.Instance) (sinks.Sink, error) {
	return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		in.Logger.Info("delivered", "type", d.Type, "id", d.ID)
		return "logged", nil
	}), nil
}
