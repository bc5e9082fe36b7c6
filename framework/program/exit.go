package program

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
)

// Exit codes, which rootHelp lists.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitSignal = 130
)

func exitCode(err error) int {
	var usage *command.UsageError
	var mistakes *config.Error
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.As(err, &mistakes):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitSignal
	}
	return exitFailed
}

// untilSignalled returns a context that the first SIGINT or SIGTERM cancels; the second
// calls exit. stop ends the handling of these signals.
func untilSignalled(parent context.Context, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-done:
				return
			case <-signals:
			}
			if ctx.Err() != nil {
				exit(exitSignal)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// outliveReaders keeps the program alive when the reader of its output or its log goes away: a write then only
// fails. The signal is caught, and not ignored, since child processes would inherit that.
func outliveReaders() (end func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}
