package forwarder_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// echo is a sink whose destination repeats private data in whatever it answers.
type echo struct{}

func (echo) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	refusal := sinks.WithAnswer(errors.New("422"), "ada@shop.example is taken")
	switch d.ID {
	case "good", "hooked":
		return "smtp 250 queued for ada@shop.example", nil
	case "strange":
		return "of ada@shop.example", nil
	case "dies":
		return "", sinks.Permanent(refusal)
	case "both":
		return "", fmt.Errorf("%w, and %w", sinks.WithAnswer(errors.New("500"), "ada@shop.example is down"), refusal)
	case "down":
		return "", sinks.Unavailable(refusal)
	}
	return "", refusal
}

func TestNothingOfAnAnswerIsKeptOrLoggedWithoutAnswerBytes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for _, limit := range []int{0, 3} {
			var mu sync.Mutex
			var said bytes.Buffer // by hooks, observers and the log
			say := func(values ...any) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(&said, "%+v\n", values)
			}
			parked := func(_ context.Context, _ *sql.Tx, all []event.Parked) error {
				for _, p := range all {
					say(p.Error, p.Attempts)
				}
				return nil
			}
			f := o.one(forwarder.Sink{Sink: echo{}, AnswerBytes: &limit, Hooks: forwarder.Hooks{Parked: parked, Dead: parked,
				Delivered: func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
					for _, d := range all {
						say(d.Receipt)
						if d.ID == "hooked" {
							return sinks.WithAnswer(errors.New("no row"), "ada@shop.example is unknown")
						}
					}
					return nil
				}}}, watchedBy(event.Func(func(e event.Event) {
				switch e := e.(type) {
				case *event.Attempt:
					say(e.Err, e.Receipt)
				case *event.BreakerChange:
					say(e.Cause)
				}
			})), func(c *forwarder.Config) {
				c.Logger = slog.New(slog.NewTextHandler(writer(func(p []byte) { say(string(p)) }), &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			f.publish("t", "", "good", "strange", "hooked", "dies", "both", "retried")
			f.publish("t", "", "down")
			pass(30 * time.Minute) // the breaker is open, and the heartbeat says why
			members, err := o.store.Membership(t.Context())
			require.NoError(t, err)
			require.True(t, members.Members[0].States["sink"].BreakerOpen)
			require.NotContains(t, fmt.Sprintf("%+v", members.Members), "ada")
			f.end()
			kept := strings.Join(append(o.texts(`SELECT last_error || attempts || receipt || hook_error FROM outbox_parked`), o.texts(`SELECT receipt FROM outbox_receipts`)...), "\n")
			for what, text := range map[string]string{"kept": kept, "said": said.String()} {
				require.NotContains(t, text, "ada@", what)
				require.Equal(t, limit > 0, strings.Contains(text, "ada"), what)
				require.Contains(t, text, "smtp 250", what)
				require.Contains(t, text, "422", what)
			}
			require.Contains(t, kept, "Hooks.Delivered: no row")
			o.exec(`DELETE FROM outbox_parked`)
			o.exec(`DELETE FROM outbox_receipts`)
			o.exec(`DELETE FROM outbox`)
		}
	})
}

// writer is a function as an io.Writer.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
