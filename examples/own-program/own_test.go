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
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is the environment of the program: a database, a ledger, a mail server and a desk.
type shop struct {
	folder   string
	mailbox  *smtptest.Server
	desk     *desk
	settings []string
}

// newShop returns a shop with a desk that gives these answers. The settings are additional
// environment variables.
func newShop(t *testing.T, answer func(page) string, settings ...string) *shop {
	mailbox, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
	d, err := openDesk(answer)
	require.NoError(t, err)
	t.Cleanup(d.close)
	return &shop{t.TempDir(), mailbox, d, settings}
}

func ok(page) string { return "OK" }

func (s *shop) environ() []string {
	return append([]string{
		"DATABASE_URL=sqlite:" + filepath.Join(s.folder, "shop.db"),
		"LEDGER=" + filepath.Join(s.folder, "ledger.csv"),
		"SMTP=" + s.mailbox.URL(),
		"DESK=" + s.desk.address(),
	}, s.settings...)
}

// run runs a command, which must exit with 0, and returns its standard output.
func (s *shop) run(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := program.Run(t.Context(), program.Call{Args: args, Environ: s.environ(), Stdout: &stdout, Stderr: &stderr}, options()...)
	require.Zero(t, code, "%s\n%s", stdout.String(), stderr.String())
	return stdout.String()
}

// publish publishes notifications in one transaction.
func (s *shop) publish(t *testing.T, notifications ...any) {
	t.Helper()
	s.inTx(t, func(ctx context.Context, tx *sql.Tx, publisher *outbox.Publisher) error {
		return publisher.Publish(ctx, tx, notifications...)
	})
}

func (s *shop) inTx(t *testing.T, do func(context.Context, *sql.Tx, *outbox.Publisher) error) {
	t.Helper()
	ctx := t.Context()
	db, err := sqlite.OpenDB(filepath.Join(s.folder, "shop.db"))
	require.NoError(t, err)
	defer db.Close()
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	require.NoError(t, err)
	publisher, err := outbox.New(types(), store, outbox.Config{})
	require.NoError(t, err)
	require.NoError(t, publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { return do(ctx, tx, publisher) }))
}

// insertOldAndInvalid inserts an order in version 1, and a row whose payload is not an order.
func (s *shop) insertOldAndInvalid(t *testing.T) {
	t.Helper()
	s.inTx(t, func(ctx context.Context, tx *sql.Tx, _ *outbox.Publisher) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO outbox (id, type, version, key, payload)
			VALUES ('old', 'order.placed', 1, 'o-3', '{"order": "o-3", "email": "bob@example.com", "euros": 5.5}'),
			('odd', 'order.placed', 2, 'o-4', '{"order": "o-4", "email": "eve@example.com", "cents": "many"}')`)
		return err
	})
}

func TestAllCommandsHaveTheShopsKindsAndTypes(t *testing.T) {
	s := newShop(t, ok)
	require.Equal(t, readmetest.Output(t, "go run . config check --offline"), s.run(t, "config", "check", "--offline"))
	require.Equal(t, readmetest.Output(t, "go run . types --offline"), s.run(t, "types", "--offline"))
	require.Contains(t, s.run(t, "config", "show"), "path: ${LEDGER}")
	require.Contains(t, s.run(t, "config", "schema"), "CSV file that gets a line for each order")
	require.Contains(t, s.run(t, "mail", "preview", "order.placed", "--data", "order.json"), "Thank you for your order o-17.")
	s.run(t, "migrate")
	s.publish(t, outbox.With(OrderPlaced{Order: "o-17", Email: "ada@example.com", Cents: 1999, Currency: "EUR"}, outbox.ID("new")))
	s.insertOldAndInvalid(t)
	s.forward(t, func() bool {
		content, _ := os.ReadFile(filepath.Join(s.folder, "ledger.csv")) // missing until the first delivery
		return strings.Count(string(content), "\n") == 2 && len(s.mailbox.Messages()) == 3 && strings.Count(s.run(t, "parked", "list"), "odd") == 2
	})
	content, err := os.ReadFile(filepath.Join(s.folder, "ledger.csv"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"new,o-17,1999,EUR", "old,o-3,550,EUR"}, strings.Fields(string(content)), "all in the newest version")
	require.Contains(t, s.run(t, "why", "new"), "delivered")
	require.Contains(t, s.run(t, "types"), "3")
	parked := s.run(t, "parked", "list")
	require.Contains(t, parked, "odd")
	require.Contains(t, parked, "ledger")
	require.Contains(t, parked, "warehouse")
	require.NotContains(t, parked, "new")
}

func TestTheTypesKeepTheirContracts(t *testing.T) { waybilltest.Contracts(t, types(), "schemas") }

func TestBenchMeasuresTheShopsSinks(t *testing.T) {
	s := newShop(t, ok)
	printed := s.run(t, "bench", "drain", "-c", "waybill.yaml", "--sinks", "ledger,warehouse,audit,mail", "--sample", "order.placed=order.json",
		"--rows", "5", "--runs", "1", "--yes")
	for _, sink := range []string{"ledger (ledger)", "warehouse (function)", "audit (go)", "mail (email)"} {
		require.Contains(t, printed, sink)
	}
	content, err := os.ReadFile(filepath.Join(s.folder, "ledger.csv"))
	require.NoError(t, err)
	require.Equal(t, 10, strings.Count(string(content), ",o-17,1999,EUR\n"), "5 rows in the warm-up and 5 in the run")
	require.Len(t, s.mailbox.Messages(), 10)
}

// forward runs the forwarder until done returns true.
func (s *shop) forward(t *testing.T, done func() bool) {
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
	require.Eventually(t, done, time.Minute, 20*time.Millisecond)
}
