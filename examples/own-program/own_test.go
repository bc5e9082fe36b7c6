package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// shop is the program with a database, a ledger and a mail server of its own.
type shop struct {
	folder  string
	mailbox *smtptest.Server
}

func newShop(t *testing.T) *shop {
	mailbox, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
	return &shop{t.TempDir(), mailbox}
}

func (s *shop) environ() []string {
	return []string{
		"DATABASE_URL=sqlite:" + filepath.Join(s.folder, "shop.db"),
		"LEDGER=" + filepath.Join(s.folder, "ledger.csv"),
		"SMTP=" + s.mailbox.URL(),
	}
}

// run runs a command, which must end well, and returns what it printed.
func (s *shop) run(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := program.Run(t.Context(), program.Call{Args: args, Environ: s.environ(), Stdout: &stdout, Stderr: &stderr}, options()...)
	require.Zero(t, code, "%s\n%s", stdout.String(), stderr.String())
	return stdout.String()
}

// publish publishes one order as the shop does now, one as it did in version 1, and one
// that is none.
func (s *shop) publish(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	db, err := sqlite.OpenDB(filepath.Join(s.folder, "shop.db"))
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	require.NoError(t, err)
	publisher, err := outbox.New(types(), store, outbox.Config{})
	require.NoError(t, err)
	require.NoError(t, publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		order := OrderPlaced{Order: "o-17", Email: "ada@example.com", Cents: 1999, Currency: "EUR"}
		if err := publisher.Publish(ctx, tx, outbox.With(order, outbox.ID("new"))); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO outbox (id, type, version, key, payload)
			VALUES ('old', 'order.placed', 1, 'o-3', '{"order": "o-3", "email": "bob@example.com", "euros": 5.5}'),
			('odd', 'order.placed', 2, 'o-4', '{"order": "o-4", "email": "eve@example.com", "cents": "many"}')`)
		return err
	}))
}

func TestAllCommandsKnowTheShopsKindsAndTypes(t *testing.T) {
	s := newShop(t)
	require.Equal(t, readmetest.Output(t, "go run . config check --offline"), s.run(t, "config", "check", "--offline"))
	require.Equal(t, readmetest.Output(t, "go run . types --offline"), s.run(t, "types", "--offline"))
	require.Contains(t, s.run(t, "config", "show"), "path: ${LEDGER}")
	require.Contains(t, s.run(t, "config", "schema"), "CSV file to which a line is added for each order")
	require.Contains(t, s.run(t, "mail", "preview", "order.placed", "--data", "order.json"), "Thank you for your order o-17.")
	s.run(t, "migrate")
	s.publish(t)
	s.forward(t)
	content, err := os.ReadFile(filepath.Join(s.folder, "ledger.csv"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"new,o-17,1999,EUR", "old,o-3,550,EUR"}, strings.Fields(string(content)), "in the newest version")
	require.Contains(t, s.run(t, "why", "new"), "delivered")
	require.Contains(t, s.run(t, "types"), "3")
	parked := s.run(t, "parked", "list")
	require.Contains(t, parked, "odd")
	require.Contains(t, parked, "ledger")
	require.Contains(t, parked, "warehouse")
	require.NotContains(t, parked, "new")
}

func TestABenchMeasuresTheShopsOwnSinks(t *testing.T) {
	s := newShop(t)
	printed := s.run(t, "bench", "drain", "-c", "waybill.yaml", "--sinks", "ledger,warehouse,audit,mail", "--type", "order.placed", "--data", "order.json",
		"--rows", "5", "--runs", "1", "--yes")
	for _, sink := range []string{"ledger (ledger)", "warehouse (function)", "audit (go)", "mail (email)"} {
		require.Contains(t, printed, sink)
	}
	content, err := os.ReadFile(filepath.Join(s.folder, "ledger.csv"))
	require.NoError(t, err)
	require.Equal(t, 10, strings.Count(string(content), ",o-17,1999,EUR\n"), "a warm-up and a run")
	require.Len(t, s.mailbox.Messages(), 10)
}

// forward runs until all that was published is delivered or parked.
func (s *shop) forward(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		var out bytes.Buffer
		if code := program.Run(ctx, program.Call{Args: []string{"forward"}, Environ: s.environ(), Stdout: &out, Stderr: &out}, options()...); code != 0 {
			t.Errorf("forward ended with %d: %s", code, out.String())
		}
	})
	defer forwarding.Wait()
	defer stop()
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(filepath.Join(s.folder, "ledger.csv")) // it is not there at first
		return strings.Count(string(content), "\n") == 2 && len(s.mailbox.Messages()) == 3 && strings.Count(s.run(t, "parked", "list"), "odd") == 2
	}, time.Minute, 20*time.Millisecond)
}
