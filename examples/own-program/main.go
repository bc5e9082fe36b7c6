// Own-program is Waybill's command line with a shop's additions: its types, two sink kinds,
// functions, and a sink built in Go. It is a separate module, as yours would be.
// docs/writing-a-sink.md explains the kind pager.
//
//	cd examples/own-program
//	go run . config check --offline
//	go run . types --offline
//	go run . mail preview order.placed --data order.json
//	go run . migrate && go run . forward
//
// All commands work with these kinds and types; go run . --help lists the commands.
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

// options returns the shop's additions.
func options() []program.Option {
	return []program.Option{
		program.Types(types()),
		program.Kinds(ledgerKind(), pagerKind()),                  // kind: ledger, kind: pager
		program.Functions("warehouse", function.On(reserveStock)), // kind: function
		program.Sink("audit", newAudit),                           // kind: go
	}
}

// reserveStock receives each order in the newest version of its type, also if an older version was stored.
func reserveStock(_ context.Context, o OrderPlaced) error {
	slog.Info("stock is reserved", "order", o.Order)
	return nil
}

// newAudit returns a sink that has no kind: the program builds it in Go.
func newAudit(in sinks.Instance) (sinks.Sink, error) {
	return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		in.Logger.Info("delivered", "type", d.Type, "id", d.ID)
		return "logged", nil
	}), nil
}
