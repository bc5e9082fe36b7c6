package forwarder

import (
	"context"
	"log/slog"
	"strings"

	"github.com/waybill-go/waybill/sinks"
)

// withoutAnswers is a handler that leaves the answers of destinations out of errors, since they may
// repeat private data. At the level debug, it adds the first line of the answer.
type withoutAnswers struct{ slog.Handler }

func (h withoutAnswers) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	for a := range r.Attrs {
		err, ok := a.Value.Any().(error)
		if !ok || sinks.AnswerOf(err) == "" {
			clean.AddAttrs(a)
			continue
		}
		clean.AddAttrs(slog.String(a.Key, sinks.Brief(err)))
		if h.Enabled(ctx, slog.LevelDebug) {
			line, _, _ := strings.Cut(sinks.AnswerOf(err), "\n")
			clean.AddAttrs(slog.String("answer", line))
		}
	}
	return h.Handler.Handle(ctx, clean)
}

func (h withoutAnswers) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutAnswers{h.Handler.WithAttrs(attrs)}
}

func (h withoutAnswers) WithGroup(name string) slog.Handler {
	return withoutAnswers{h.Handler.WithGroup(name)}
}
