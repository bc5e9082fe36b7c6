package forwarder

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestLogsHaveTheAnswerOfADestinationOnlyAtDebug(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("too old: %w", sinks.Permanent(sinks.WithAnswer(errors.New("422"), "ada@shop.example is taken\nsecond line")))
	for level, want := range map[slog.Level]string{
		slog.LevelInfo:  "level=WARN msg=failed sink=partner error=\"too old: permanent: 422\" attempt=2\n",
		slog.LevelDebug: "level=WARN msg=failed sink=partner error=\"too old: permanent: 422\" answer=\"ada@shop.example is taken\" attempt=2\n",
	} {
		var out bytes.Buffer
		text := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		slog.New(withoutAnswers{text}).With("sink", "partner").Warn("failed", "error", err, "attempt", 2)
		require.Equal(t, want, out.String())
	}
}
