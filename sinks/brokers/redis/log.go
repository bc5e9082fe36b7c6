package redis

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// clientLog is the logger of all go-redis clients of this process, unless the program calls
// redis.SetLogger. It logs to the logger of the sink that connected last. By default, go-redis
// writes to standard error.
var clientLog = setLogger()

type logger struct{ sink atomic.Pointer[sinkLog] }

type sinkLog struct {
	logger      *slog.Logger // may be nil
	credentials redact.Credentials
}

func setLogger() *logger {
	l := new(logger)
	redis.SetLogger(l)
	return l
}

// Printf logs a warning, because failures are also errors of deliveries.
func (l *logger) Printf(_ context.Context, format string, a ...any) {
	if to := l.sink.Load(); to != nil && to.logger != nil {
		to.logger.Warn("Redis client", "message", to.credentials.Text(fmt.Sprintf(format, a...)))
	}
}
