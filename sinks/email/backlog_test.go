package email_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// signup is a notification of customer.signed-up.
type signup struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

func TestMailsThatCannotBeSentDelayNoOthers(t *testing.T) {
	const bad = 20 // twice as many as open a breaker
	for name, wrong := range map[string]signup{
		"no address":              {"nobody", "Jim"},
		"a missing field":         {"jim@example.org", ""},
		"too large":               {"jim@example.org", strings.Repeat("é", 200<<10)},
		"no such user":            {"refused@example.org", "Jim"},
		"no such user, no status": {"unknown@example.org", "Jim"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, smtptest.Config{OnRecipient: replyingTo(map[string]string{"refused@example.org": "5.1.1 no", "unknown@example.org": "no such user"})})
			sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: server.URL(), From: "shop@example.com", MaxSizeMB: 1, FS: folder("customer.signed-up", map[string]string{
				"to.tmpl": "{{.Payload.email}}", "subject.tmpl": "s", "text.tmpl": "{{.Payload.name}}",
			})})
			require.NoError(t, err)
			db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			o := waybill.SQLite(db, waybill.SQLiteConfig{})
			waybill.Register[signup](o, "customer.signed-up")
			o.Deliver("mail", sink, "customer.signed-up")
			require.NoError(t, o.Migrate(t.Context()))
			require.NoError(t, o.Open(t.Context()))
			require.NoError(t, o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				for range bad {
					if err := o.Publish(ctx, tx, wrong); err != nil {
						return err
					}
				}
				for i := range 5 {
					if err := o.Publish(ctx, tx, signup{fmt.Sprintf("good-%d@example.org", i), "Jane"}); err != nil {
						return err
					}
				}
				return nil
			}))
			config, err := o.Forwarding()
			require.NoError(t, err)
			waybilltest.Drain(t, config, waybilltest.AllowDead())
			assert.Equal(t, 5, server.Count())
			var dead int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`).Scan(&dead))
			assert.Equal(t, bad, dead)
		})
	}
}

// replyingTo refuses recipients with 550 and their texts.
func replyingTo(texts map[string]string) func(context.Context, string) error {
	return func(_ context.Context, to string) error {
		if text, refused := texts[to]; refused {
			return smtptest.Reply(550, text)
		}
		return nil
	}
}
