package program

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNothingIsLostWhileSinksAndRoutesChange inserts rows steadily while sinks are added, removed and
// moved, and routes change.
func TestNothingIsLostWhileSinksAndRoutesChange(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destinations := make(map[string]*receiver)
		for _, name := range []string{"always", "leaver", "mover", "late"} {
			destinations[name] = newReceiver(t)
		}
		sink := func(name, path string, threshold int) string {
			return fmt.Sprintf("  %s: {kind: http, start: oldest, with: {url: %q}, parallelism: {threshold: %d}}\n", name, destinations[name].URL+path, threshold)
		}
		always, leaver, mover, late := sink("always", "", 8), sink("leaver", "", 8), sink("mover", "/here", 8), sink("late", "", 8)
		moved := sink("mover", "/there", 8)
		const applied = "applied the changed configuration"
		steps := []struct {
			sinks  []string
			routes string
			answer string
		}{
			{[]string{always, leaver, mover}, `"order.*": [leaver, mover]`, ""},
			{[]string{always, leaver, mover, late}, `"order.*": [leaver, mover, late]`, applied},
			{[]string{sink("always", "", 16), leaver, mover, sink("late", "", 2)}, `"order.*": [leaver, mover, late]`, applied},
			{[]string{always, mover, late}, `"order.*": [mover, late]`, applied},
			{[]string{always, moved, late}, `"order.*": [mover, late]`, applied},
			{[]string{always, moved, late}, "order.placed: [late, mover]\n  order.paid: [mover, late]", applied},
			{[]string{always, moved, late, leaver}, `"order.*": [late, mover, leaver]`, applied},
		}
		file := writeFile(t, "")
		write := func(i int) {
			text := fmt.Sprintf("database: %q\nsinks:\n%sroutes:\n  \"*\": [always]\n  %s\n", o.address, strings.Join(steps[i].sinks, ""), steps[i].routes)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		write(0)
		f := start(t, "forward", "-c", file)
		p := startProducing(t, o)

		for i, step := range steps {
			if i > 0 {
				write(i)
				f.signal(t, syscall.SIGHUP)
				f.awaitLine(t, step.answer)
			}
			came, _ := destinations["always"].bodies()
			destinations["always"].await(t, came+100) // it delivers while more rows arrive
		}
		orders, others := p.end(t)
		destinations["always"].await(t, orders+others)
		for _, name := range []string{"leaver", "mover", "late"} {
			destinations[name].await(t, orders)
		}
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
		for name, destination := range destinations {
			wanted := orders
			if name == "always" {
				wanted += others
			}
			require.Len(t, destination.counts, wanted, name)
			for body, count := range destination.counts {
				require.Equal(t, 1, count, "%s: %s", name, body)
			}
		}
	})
}

// producer inserts a row about every millisecond, alternating between types.
type producer struct {
	stop chan struct{}
	done chan error
	rows int
}

var produced = []string{"order.placed", "order.paid", "stock.counted"}

func startProducing(t *testing.T, o outbox) *producer {
	t.Helper()
	p := &producer{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-p.stop:
				p.done <- nil
				return
			case <-pace.C:
			}
			_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ($1, $2, $3)`,
				produced[p.rows%len(produced)], fmt.Sprintf("key-%d", p.rows%50), fmt.Sprintf(`{"n":%d}`, p.rows))
			if err != nil {
				p.done <- err
				return
			}
			p.rows++
		}
	}()
	return p
}

// end returns the number of rows whose type is of orders, and the number of others.
func (p *producer) end(t *testing.T) (orders, others int) {
	t.Helper()
	close(p.stop)
	require.NoError(t, <-p.done)
	others = p.rows / len(produced)
	return p.rows - others, others
}
