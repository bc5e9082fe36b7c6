// Package program is the command line of Waybill, for the program waybill and for
// programs with sink kinds, notification types and handlers of their own:
//
//	func main() {
//		program.Main(
//			program.Kinds(pager.Kind()),
//			program.Types(types),
//		)
//	}
//
// Each command is a file named after it, with a constructor that root.go lists:
// that is all there is to adding one. What commands are made of is wired in
// wire.go from the providers in providers.go.
package program

import (
	"context"
	"io"
	"os"
	_ "time/tzdata" // zones of schedules, on machines that have none
)

//go:generate go tool wire
//go:generate go run ../../cmd/waybill docs ../../docs

// Main runs the command that the process's arguments name, with the process's
// environment and its standard output and error, and ends the process with the exit code
// that waybill --help lists. The first SIGINT or SIGTERM ends the command, gracefully
// where it forwards; the second one the process.
func Main(options ...Option) {
	ctx, stop := untilSignalled(context.Background(), os.Exit)
	code := Run(ctx, Call{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}, options...)
	stop()
	os.Exit(code)
}

// Call is one call of the command line.
type Call struct {
	// Args name the command, its flags and arguments, without the program's name.
	Args []string
	// Environ is the environment, as NAME=value.
	Environ []string
	// Stdout gets results, Stderr logs and errors; nil ones are discarded.
	Stdout, Stderr io.Writer
}

// Run runs the command that a call names until it is done or ctx is, and returns the exit
// code. Unlike Main it heeds no signals but SIGHUP, by which waybill forward reads its
// configuration again.
func Run(ctx context.Context, call Call, options ...Option) int {
	p := &invocation{environ: call.Environ, stdout: orNowhere(call.Stdout), stderr: orNowhere(call.Stderr)}
	made, err := partsOf(options)
	p.name, p.options = made.name, made.Options
	if err != nil {
		p.print(err)
		return exitFailed
	}
	root := newRoot(p)
	root.SetArgs(call.Args)
	err = root.ExecuteContext(ctx)
	p.print(err)
	return exitCode(err)
}

func orNowhere(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
