package privacy_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/registry"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// plainOrder and privateOrder have the same payload of about 300 bytes.
type plainOrder struct{ ID, Customer, Email, Note string }
type privateOrder plainOrder

// BenchmarkPublish publishes notifications with and without a private field in turns, each in transactions with a row of
// the application, on PostgreSQL. "of-plain" is the share of the throughput that is left with a private field.
func BenchmarkPublish(b *testing.B) {
	db, s := outboxtest.PostgreSQL(b, outboxtest.DSN(b), postgres.Config{})
	types := registry.New()
	require.NoError(b, registry.Register[plainOrder](types, "plain"))
	require.NoError(b, registry.Register[privateOrder](types, "private", registry.Private(func(o privateOrder) string { return o.Customer }, "Email")))
	k := keyring(b, s, privacy.Config{Master: local(b, masterKey(0)), Cache: time.Hour})
	p, err := outbox.New(types, s, outbox.Config{Privacy: k, Announcer: outbox.Silent})
	require.NoError(b, err)
	_, err = db.ExecContext(b.Context(), `CREATE TABLE orders (id text)`)
	require.NoError(b, err)
	for _, c := range []struct {
		name               string
		persons, perCommit int
	}{{"known persons, one in a transaction", 100, 1}, {"known persons, a hundred in a transaction", 100, 100}, {"new persons, one in a transaction", 1 << 30, 1}} {
		b.Run(c.name, func(b *testing.B) {
			order := func(i int) plainOrder {
				return plainOrder{ID: fmt.Sprint(i), Customer: fmt.Sprint(c.name, i%c.persons), Email: "ada@example.com", Note: strings.Repeat("x", 200)}
			}
			publish := func(i int, of func(plainOrder) any) time.Duration {
				all := make([]any, c.perCommit)
				for j := range all {
					all[j] = of(order(i*c.perCommit + j))
				}
				began := time.Now()
				require.NoError(b, p.RunInTx(b.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, fmt.Sprint(i)); err != nil {
						return err
					}
					return p.Publish(ctx, tx, all...)
				}))
				return time.Since(began)
			}
			private := func(o plainOrder) any { return privateOrder(o) }
			if c.persons < 1<<30 { // until the keys are remembered
				for i := range 2 * c.persons / c.perCommit {
					publish(i, private)
				}
				time.Sleep(1500 * time.Millisecond)
			}
			var plain, encrypted time.Duration
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				plain += publish(i, func(o plainOrder) any { return o })
				encrypted += publish(i, private)
			}
			b.ReportMetric(float64(plain)/float64(encrypted), "of-plain")
		})
	}
}
