// Demo is the command waybill demo as a separate program, which compiles faster:
//
//	go run ./cmd/demo
//
// The first SIGINT stops the demo gracefully, the second one ends the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/waybill-go/waybill/framework/program/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	command := demo.Command(os.Stdout, os.Stderr)
	command.SilenceUsage = true
	if command.ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}
