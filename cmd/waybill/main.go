// Waybill is the program: it makes the outbox's tables, forwards what is in
// them, and shows how that goes.
//
// Each command is a file named after it, with a constructor that root.go lists:
// that is all there is to adding one. What commands are made of is wired in
// wire.go from the providers in providers.go; sink kinds are listed there too.
package main

import (
	"context"
	"io"
	"os"
)

//go:generate go tool wire
//go:generate go run . docs ../../docs

func main() {
	ctx, stop := untilSignalled(context.Background(), os.Exit)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command that args name until it is done or ctx is, and returns
// the exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	p := &program{environ: environ, stdout: stdout, stderr: stderr}
	root := newRoot(p)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	p.print(err)
	return exitCode(err)
}
