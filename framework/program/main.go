// Package program runs the waybill command line in a program of your own, with your
// sink kinds, notification types and handlers:
//
//	func main() {
//		program.Main(
//			program.Kinds(pager.Kind()),
//			program.Types(types),
//		)
//	}
//
// The program then has all commands of waybill, and reads the same configuration file.
// The program cmd/waybill is Main without options, and sinks/all/cmd/waybill is Main with all kinds.
package program

// Each command has a file named after it, with a constructor that root.go lists. wire.go
// wires what commands need from the providers in providers.go.

import (
	"bytes"
	"context"
	"io"
	"log"
	"os"
	"strings"
	_ "time/tzdata" // the time zones of schedules, for machines without a zone database

	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

//go:generate go tool wire
//go:generate go -C ../../sinks/all run ./cmd/waybill docs ../../docs

// Main runs the command that os.Args names, with the environment, standard output and
// standard error of the process, and exits with one of the codes that waybill --help
// lists. The first SIGINT or SIGTERM cancels the command, and a forwarder stops
// gracefully; the second one exits at once.
func Main(options ...Option) {
	trimEnvironment()
	log.SetOutput(withoutAnswers{os.Stderr})
	ctx, stop := untilSignalled(context.Background(), os.Exit)
	code := Run(ctx, Call{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr}, options...)
	stop()
	os.Exit(code)
}

// trimEnvironment removes line ends at the end of the process's variables, also for the libraries that read
// some of them: secrets often have one.
func trimEnvironment() {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if trimmed := strings.TrimRight(value, "\r\n"); name != "" && trimmed != value {
			_ = os.Setenv(name, trimmed) // fails only for names that no environment has
		}
	}
}

// withoutAnswers is the output of package log, to which net/http quotes what a server sends behind its
// answer. Answers of customers' servers belong in no log, so it leaves the quotation out.
type withoutAnswers struct{ io.Writer }

func (w withoutAnswers) Write(line []byte) (int, error) {
	shown := line
	if before, _, quotes := bytes.Cut(line, []byte(" starting with ")); quotes && bytes.Contains(before, []byte("Unsolicited response")) {
		shown = append(before[:len(before):len(before)], '\n')
	}
	if _, err := w.Writer.Write(shown); err != nil {
		return 0, err
	}
	return len(line), nil
}

// Call is one call of the command line, for [Run].
type Call struct {
	// Args are the command, its flags and its arguments, without the program's name.
	Args []string
	// Environ is the environment, as NAME=value pairs. The process's own is not read.
	Environ []string
	// Stdout receives results, Stderr logs and errors. What goes to a nil writer is
	// discarded.
	Stdout, Stderr io.Writer
}

// Run runs the command of a call until it is done or ctx is, and returns the exit code.
// Unlike Main it handles no signal but SIGHUP, on which waybill forward reloads its
// configuration.
func Run(ctx context.Context, call Call, options ...Option) int {
	p := &command.Invocation{Environ: call.Environ, Stdout: terminal.Writer(orDiscard(call.Stdout)), Raw: orDiscard(call.Stdout), Stderr: orDiscard(call.Stderr)}
	made, err := partsOf(options)
	p.Name, p.Licenses, p.Options = made.name, made.licenses, made.Options
	if err != nil {
		p.Print(err)
		return exitFailed
	}
	root := newRoot(p)
	root.SetArgs(call.Args)
	err = root.ExecuteContext(ctx)
	p.Print(err)
	return exitCode(err)
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
