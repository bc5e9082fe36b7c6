package program

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tables returns the names of the outbox's tables, with the log and its partitions.
func (o outbox) tables(t *testing.T) []string {
	t.Helper()
	query := `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'outbox%'`
	if strings.HasPrefix(o.address, "postgres:") {
		query = `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname LIKE 'outbox%'`
	}
	return texts(t, o.db, query)
}

// texts returns the values of all columns of a query's rows as texts.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		for _, v := range values {
			if raw, isBytes := v.([]byte); isBytes {
				v = string(raw)
			}
			all = append(all, fmt.Sprint(v))
		}
	}
	require.NoError(t, rows.Err())
	return all
}

// echo is a destination that keeps the bodies in the order in which they arrive. It refuses what contains
// "refuse", and returns it in its answer.
type echo struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), "refuse") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(body)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.bodies = append(e.bodies, string(body))
	}))
	t.Cleanup(e.Close)
	return e
}

// of returns what has arrived with a text, in order.
func (e *echo) of(text string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, body := range e.bodies {
		if strings.Contains(body, text) {
			found = append(found, body)
		}
	}
	return found
}

// outboxesToPurge are a database of each kind, and a partitioned log.
func outboxesToPurge(t *testing.T, test func(t *testing.T, o outbox)) {
	t.Helper()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		test(t, o)
	})
	t.Run("partitioned", func(t *testing.T) {
		t.Parallel()
		o := databases["postgres"](t)
		r := waybill(t, "migrate", "--partition-rows", "50", "--database", o.address)
		require.Zero(t, r.code, r.stderr)
		test(t, o)
	})
}

func TestAPurgeBesideAForwarderLeavesNothingOfOnePersonAndAllOfOthers(t *testing.T) {
	t.Parallel()
	const person, others, rounds = "ada@example.com", 4, 60
	outboxesToPurge(t, func(t *testing.T, o outbox) {
		destination := newEcho(t)
		path := writeFile(t, fmt.Sprintf(`
database: %q
outbox: {receipts: true, lanes: 2}
forwarder: {lease: 2s, shutdown_timeout: 10s}
sinks: {partner: {kind: http, with: {url: %q}}}
routes: {"order.*": [partner]}
`, o.address, destination.URL))
		var ids []string
		publish := func(round int) {
			tx, err := o.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			insert := func(id, key, payload string, deliverAt any) {
				_, err := tx.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload, deliver_at) VALUES ($1, 'order.placed', $2, $3, $4)`, id, key, payload, deliverAt)
				require.NoError(t, err)
			}
			for k := range others {
				insert(fmt.Sprintf("other-%d-%d", round, k), fmt.Sprint("other-", k), fmt.Sprintf(`{"key":"other-%d","n":%d}`, k, round), nil)
			}
			if round%2 == 0 {
				id := fmt.Sprintf("1da00000-%d", round)
				ids = append(ids, id)
				what, at := "take", any(nil)
				switch round % 6 {
				case 2:
					what = "refuse"
				case 4:
					at = "2990-01-01T00:00:00.000000Z"
				}
				insert(id, person, fmt.Sprintf(`{"of":%q,"%s":%d}`, person, what, round), at)
				_, err := tx.ExecContext(t.Context(), `INSERT INTO outbox_inbox (consumer, id) VALUES ('billing', $1)`, id)
				require.NoError(t, err)
			}
			require.NoError(t, tx.Commit())
		}
		for _, statement := range []string{
			`INSERT INTO outbox_unique (type, key, until) VALUES ('order.placed', '` + person + `', '2990-01-01T00:00:00.000000Z'), ('order.placed', 'other', '2990-01-01T00:00:00.000000Z')`,
			`INSERT INTO outbox_actions (id, who, action, filter, reason) VALUES ('a-1', 'op', 'discard', '{"key":"` + person + `"}', 'asked by ` + person + `')`,
		} {
			_, err := o.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		f := startForward(t, "-c", path)
		for round := range rounds {
			publish(round)
			if round == rounds/3 || round == rounds*2/3 {
				r := waybill(t, "privacy", "purge", "--key", person, "--yes", "--database", o.address)
				require.Zero(t, r.code, r.stderr)
				require.Regexp(t, `purged \d+ rows`, r.stdout)
			}
		}
		for k := range others {
			key, want := fmt.Sprintf(`"other-%d"`, k), make([]string, rounds)
			for round := range want {
				want[round] = fmt.Sprintf(`{"key":"other-%d","n":%d}`, k, round)
			}
			require.Eventually(t, func() bool { return len(destination.of(key)) >= rounds }, patience, 20*time.Millisecond, key)
			require.Equal(t, want, destination.of(key))
		}

		// What the forwarder had in hand beside the purges is parked, or has a receipt, once it has passed everything.
		require.Eventually(t, func() bool {
			for _, c := range o.status(t).Cursors {
				if c.Pending > 0 {
					return false
				}
			}
			return len(texts(t, o.db, `SELECT id FROM outbox_parked WHERE state IN ('retrying', 'blocked')`)) == 0
		}, patience, 20*time.Millisecond)
		again := []string{"privacy", "purge", "--key", person, "--yes", "--database", o.address}
		for _, id := range ids {
			again = append(again, "--id", id)
		}
		r := waybill(t, again...)
		require.Zero(t, r.code, r.stderr)
		require.Equal(t, result{stdout: "nothing to purge\n"}, waybill(t, again...))
		for _, table := range o.tables(t) {
			for _, text := range texts(t, o.db, `SELECT * FROM "`+table+`"`) {
				require.NotContains(t, text, person, table)
				require.NotContains(t, text, "1da00000", table)
			}
		}
		require.Len(t, texts(t, o.db, `SELECT id FROM outbox`), rounds*others)
		require.Len(t, texts(t, o.db, `SELECT key FROM outbox_unique`), 1)
		require.Len(t, texts(t, o.db, `SELECT id FROM outbox_actions WHERE id = 'a-1' AND who = 'op'`), 1)
		require.Len(t, texts(t, o.db, `SELECT id FROM outbox_receipts`), rounds*others)
		require.Zero(t, f.end(t).code)
		for k := range others {
			require.Len(t, destination.of(fmt.Sprintf(`"other-%d"`, k)), rounds, "none is repeated")
		}
	})
}

func TestPurgeShowsWhatItWillDeleteAndAsks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 100)
		purge := []string{"privacy", "purge", "--key", "order-7", "--key", "order-8", "--database", o.address}
		r := waybill(t, append(purge, "--dry-run")...)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `^ TABLE +ROWS +UNDELIVERED +OLDEST +NEWEST *\n log +4 +4 +\S+ \S+.*\n4 are not delivered everywhere yet, .*\nwould purge 4 rows\n$`, r.stdout)
		r = answer(t, "n\n", purge...)
		require.Zero(t, r.code)
		require.Contains(t, r.stdout, "Purge 4 rows? [y/N] nothing was done\n")

		r = waybill(t, append(purge, "--dry-run", "--json")...)
		var plan struct{ Counts []struct{ Table string } }
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &plan))
		require.Equal(t, "log", plan.Counts[0].Table)
		require.Len(t, texts(t, o.db, `SELECT id FROM outbox`), 100)

		r = waybill(t, append(purge, "--yes", "--by", "ada")...)
		require.Zero(t, r.code, r.stderr)
		require.Regexp(t, `\npurged 4 rows \(action \S+\)\n$`, r.stdout)
		require.Len(t, texts(t, o.db, `SELECT id FROM outbox`), 96)
		action := o.lastAction(t)
		require.Equal(t, "purge", action.Name)
		require.Equal(t, "ada", action.Who)
		require.EqualValues(t, 4, action.Count)
		require.JSONEq(t, `{"keys": 2, "ids": 0}`, string(action.Filter))
		require.Equal(t, result{stdout: "nothing to purge\n"}, waybill(t, append(purge, "--yes")...))
	})
}

func TestPurgeRefusesWhatSelectsNoOneOrAnything(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"key or id is missing: name an ordering key": {"--yes"},
		"key is empty: leave it out":                 {"--key", "", "--yes"},
		"id is empty: leave it out":                  {"--key", "k", "--id", "", "--yes"},
		"there is no terminal to ask on":             {"--key", "k"},
	} {
		r := waybill(t, append([]string{"privacy", "purge", "--database", "sqlite:none.db"}, flags...)...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, want)
	}
}
