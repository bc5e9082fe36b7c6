package redis

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// clientLog is where the clients of this process write, unless the program calls
// redis.SetLogger itself: to the logger of the sink that was opened last. go-redis has one
// logger for all clients, by default standard error.
var clientLog = setLogger()

type logger struct{ sink atomic.Pointer[slog.Logger] }

func setLogger() *logger {
	l := new(logger)
	redis.SetLogger(l)
	return l
}

// Printf writes a warning: what fails is an error of a delivery too.
func (l *logger) Printf(_ context.Context, format string, a ...any) {
	if to := l.sink.Load(); to != nil {
		to.Warn("Redis client", "says", fmt.Sprintf(format, a...))
	}
}
