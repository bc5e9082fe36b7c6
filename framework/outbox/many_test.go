package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
)

// Many rows have another INSERT than few, also where the INSERT of one row is prepared.
func TestManyRowsAreAppendedUnchangedAndInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, prepared := range []bool{false, true} {
		t.Run(fmt.Sprint("prepared=", prepared), func(t *testing.T) {
			t.Parallel()
			db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{Prepare: prepared})
			p, err := outbox.New(registry.New(), s, outbox.Config{Announcer: outbox.Silent})
			require.NoError(t, err)
			var all []notification.Envelope
			for i, odd := range []string{`a"b`, `a\b`, `{a,b}`, `NULL`, ` a `, `ä👍`, `'`, `\"`, `,`, `''`} {
				all = append(all, notification.Envelope{
					ID: fmt.Sprint(odd, i), Type: "odd" + fmt.Sprint(i), Key: odd, Version: i + 1, Payload: fmt.Appendf(nil, "{\"a\":%q}", odd),
					OccurredOn: time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), Metadata: notification.Metadata{"m": odd},
				})
			}
			for i := len(all); i < 40; i++ {
				all = append(all, notification.Envelope{
					ID: fmt.Sprint("n", i), Type: "t", Version: 1, Payload: []byte(`{}`), OccurredOn: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
					DeliverAt: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), Metadata: notification.Metadata{},
				})
			}
			require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error { return p.Append(ctx, tx, all...) }))
			got := published(t, s)
			require.Len(t, got, len(all))
			for i := range all {
				require.Equal(t, all[i].ID, got[i].ID)
				require.Equal(t, all[i].Key, got[i].Key)
				require.Equal(t, all[i].Version, got[i].Version)
				require.Equal(t, all[i].Metadata.Get("m"), got[i].Metadata.Get("m"))
				require.JSONEq(t, string(all[i].Payload), string(got[i].Payload))
				require.True(t, all[i].OccurredOn.Equal(got[i].OccurredOn), got[i].OccurredOn)
				require.True(t, all[i].DeliverAt.Equal(got[i].DeliverAt), got[i].DeliverAt)
			}
		})
	}
}
