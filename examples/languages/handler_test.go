package languages_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// payments has a payment for each behaviour of handler.py. The program refuses -1 cents, fails at
// the first attempt for the account busy, and dies between booking the payment of the account
// unlucky and answering.
const payments = `INSERT INTO outbox (id, type, payload) VALUES
	('payment-1', 'payment.received', '{"account": "ada", "cents": 1200}'),
	('payment-2', 'payment.received', '{"account": "grace", "cents": 350}'),
	('payment-3', 'payment.received', '{"account": "busy", "cents": 80}'),
	('payment-4', 'payment.received', '{"account": "unlucky", "cents": 99}'),
	('payment-5', 'payment.received', '{"account": "mallory", "cents": -1}')`

func TestAHandlerInPythonBooksEachPaymentOnce(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		require.False(t, required("python"), "python3 is missing")
		t.Skip("needs python3")
	}
	folder := t.TempDir()
	ledger := filepath.Join(folder, "ledger.txt")
	shown := readmetest.Output(t, "cat ledger.txt")
	t.Chdir("python")
	waybill := func(ctx context.Context, args ...string) (string, int) {
		var out bytes.Buffer
		code := program.Run(ctx, program.Call{Args: args, Stdout: &out, Stderr: &out, Environ: append(os.Environ(),
			"DATABASE_URL=sqlite:"+filepath.Join(folder, "shop.db"), "LEDGER="+ledger, "WAYBILL_SINKS_LEDGER_RETRY_INITIAL=50ms")})
		return out.String(), code
	}
	out, code := waybill(t.Context(), "migrate")
	require.Zero(t, code, out)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), payments)
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		if out, code := waybill(ctx, "forward"); code != 0 {
			t.Errorf("forward ended with %d: %s", code, out)
		}
	})
	require.Eventually(t, func() bool {
		parked, _ := waybill(t.Context(), "parked", "list")
		for _, id := range []string{"payment-1", "payment-2", "payment-3", "payment-4"} {
			if why, _ := waybill(t.Context(), "why", id); !strings.Contains(why, "delivered") {
				return false
			}
		}
		return strings.Contains(parked, "payment-5")
	}, time.Minute, 20*time.Millisecond)
	stop()
	forwarding.Wait()

	lines := func(text string) []string { return slices.Sorted(strings.Lines(text)) }
	booked, err := os.ReadFile(ledger)
	require.NoError(t, err)
	require.Equal(t, lines(shown), lines(string(booked)), "each once, in any order")
	why, code := waybill(t.Context(), "why", "payment-5")
	require.Zero(t, code, why)
	require.Regexp(t, regexp.MustCompile(`dead.*permanent: the program's reason: -1 cents cannot be booked`), why)
}
