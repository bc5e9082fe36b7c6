package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

// newRole creates a role that may only log in, and returns its name and the database's address with it.
// The role is dropped when the test ends.
func newRole(t *testing.T, db *sql.DB, dsn string) (role, address string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT 'role_' || replace(gen_random_uuid()::text, '-', '')`).Scan(&role))
	exec(t, db, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.User(role)
	return role, u.String()
}

func exec(t testing.TB, db store.Execer, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
}

// rest reads the remaining rows up to a new target.
func rest(ctx context.Context, s *postgres.Store, r store.Reader) (ids []string, end store.Position, err error) {
	target, err := s.Probe(ctx)
	if err != nil {
		return nil, nil, err
	}
	for {
		page, err := r.Next(ctx, target, 1000)
		if err != nil {
			return ids, end, err
		}
		for _, e := range page.Envelopes {
			ids = append(ids, e.ID)
		}
		if end = page.End; page.CaughtUp {
			return ids, end, nil
		}
	}
}

// Row-level security that hides rows from a forwarder's role must stop it: a page
// without them would look like the end of the log, and the cursor would move on.
func TestRowLevelSecurityStopsReadersInsteadOfHidingRows(t *testing.T) {
	t.Parallel()
	direct := func(_ *testing.T, dsn string) string { return dsn }
	const tenant = `CREATE POLICY tenant ON outbox USING (metadata->>'tenant' = current_setting('app.tenant', true))`
	for name, test := range map[string]struct {
		policy string
		pool   func(t *testing.T, dsn string) string
	}{
		"a policy of tenants":          {tenant, direct},
		"no policy":                    {`SELECT`, direct},
		"a policy that hides all rows": {`CREATE POLICY none ON outbox USING (false)`, direct},
		"a policy of tenants, behind a transaction pooler": {tenant, func(t *testing.T, dsn string) string {
			pooled, err := postgrestest.StartPooler(t, dsn, 3)
			if err != nil {
				t.Skip(err)
			}
			return pooled
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			owner := openDB(t, dsn)
			openStore(t, owner, postgres.Config{})
			role, address := newRole(t, owner, dsn)
			exec(t, owner,
				`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role,
				`GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role)
			db := openDB(t, test.pool(t, address))
			s, err := postgres.Open(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			l, err := lease(t, s, store.NewLane("sink", 0, 1))
			require.NoError(t, err)
			reader := readerFrom(t, s, l.Position)
			exec(t, owner, `INSERT INTO outbox (id, type, payload) VALUES ('before', 'a', '1')`)
			ids, _, err := rest(t.Context(), s, reader)
			require.NoError(t, err)
			require.Equal(t, []string{"before"}, ids)

			exec(t, owner,
				test.policy, `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`,
				`INSERT INTO outbox (id, type, payload) VALUES ('a', 'a', '1'), ('b', 'b', '1')`)
			fresh := readerFrom(t, s, nil)
			for _, r := range []store.Reader{reader, fresh} {
				ids, _, err = rest(t.Context(), s, r)
				require.ErrorIs(t, err, store.ErrHidden, "read %v", ids)
				require.Empty(t, ids)
				var advised *store.AdvisedError
				require.ErrorAs(t, err, &advised)
				require.Contains(t, advised.Advice(), "BYPASSRLS")
			}
			_, err = s.Sample(t.Context(), store.SampleQuery{})
			require.ErrorIs(t, err, store.ErrHidden)

			exec(t, owner, `ALTER ROLE `+role+` BYPASSRLS`)
			ids, _, err = rest(t.Context(), s, reader)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b"}, ids)
		})
	}
}

// Hidden rows of other tables do as much harm: a key whose parked delivery is hidden would seem free, and a
// sink whose cursor is hidden would seem to keep no rows.
func TestRowLevelSecurityOnTheOtherTablesIsAnError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := postgrestest.DSN(t)
	owner := openDB(t, dsn)
	openStore(t, owner, postgres.Config{Receipts: true})
	role, address := newRole(t, owner, dsn)
	exec(t, owner,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role,
		`GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO `+role,
		`INSERT INTO outbox (id, type, key, payload) VALUES ('a', 'a', 'k', '1')`,
		`INSERT INTO outbox (id, type, payload, deliver_at) VALUES ('later', 'a', '1', now() + interval '1 day')`)
	restricted := openDB(t, address)
	s, err := postgres.Open(ctx, restricted, postgres.Config{Receipts: true})
	require.NoError(t, err)
	lane := store.NewLane("sink", 0, 1)
	l, err := lease(t, s, lane)
	require.NoError(t, err)
	reader := readerFrom(t, s, nil)
	target, err := s.Probe(ctx)
	require.NoError(t, err)
	page, err := reader.Next(ctx, target, 10)
	require.NoError(t, err)
	parked := store.Parked{Envelope: page.Envelopes[0], State: store.StateRetrying, Attempt: 1, DueAt: time.Now()}
	require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Minute, Number: 1, Position: page.End, Park: []store.Parked{parked,
		{Envelope: page.Envelopes[1], State: store.StateScheduled, DueAt: page.Envelopes[1].DeliverAt}}}))
	require.NoError(t, s.Begin(ctx, store.Action{ID: "act", Who: "me", Name: "requeue", Filter: []byte(`{}`)}))

	filter := store.ParkedFilter{Sink: "sink"}
	cancel := func() error {
		tx, err := restricted.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		_, err = s.Cancel(ctx, tx, store.Scheduled{ID: "later"})
		return err
	}
	calls := map[string]map[string]func() error{
		"outbox_cancelled": {
			"Next": func() error {
				r, err := s.NewReader(nil, everything)
				if err == nil {
					_, err = r.Next(ctx, target, 10)
				}
				return err
			},
			"Due": func() error {
				_, _, err := s.Due(ctx, store.DueQuery{Lane: lane, Now: time.Now().Add(48 * time.Hour), Limit: 10})
				return err
			},
			"CountParked": func() error { _, _, err := s.CountParked(ctx, filter); return err },
			"FindParked":  func() error { _, err := s.FindParked(ctx, filter, store.ParkedPlace{}, 10); return err },
			"Trace":       func() error { _, err := s.Trace(ctx, store.TraceQuery{ID: "none"}); return err },
			"CountReplay": func() error { _, err := s.CountReplay(ctx, store.ReplayQuery{Sink: "sink", UpTo: 10}); return err },
		},
		"outbox_parked": {
			"Cancel": cancel,
			"Due": func() error {
				_, _, err := s.Due(ctx, store.DueQuery{Lane: lane, Now: time.Now().Add(time.Hour), Limit: 10})
				return err
			},
			"Followers":   func() error { _, _, err := s.Followers(ctx, lane, []string{"k"}, false, 10); return err },
			"HeldKeys":    func() error { _, err := s.HeldKeys(ctx, lane, false, "", 10); return err },
			"CountParked": func() error { _, _, err := s.CountParked(ctx, filter); return err },
			"FindParked":  func() error { _, err := s.FindParked(ctx, filter, store.ParkedPlace{}, 10); return err },
			"BrowseParked": func() error {
				_, err := s.BrowseParked(ctx, store.ParkedQuery{Look: 10, Limit: 10})
				return err
			},
			"Collection": func() error {
				_, err := s.Collection(ctx, "sink", store.CollectionRef{Group: "g"})
				return err
			},
			"ParkedFigures": func() error { _, err := s.ParkedFigures(ctx); return err },
			"Traces":        func() error { _, err := s.Traces(ctx, "sink"); return err },
			"Trace":         func() error { _, err := s.Trace(ctx, store.TraceQuery{ID: "a"}); return err },
			"Sample":        func() error { _, err := s.Sample(ctx, store.SampleQuery{}); return err },
			"CountReplay":   func() error { _, err := s.CountReplay(ctx, store.ReplayQuery{Sink: "sink", UpTo: 10}); return err },
			"Requeue": func() error {
				_, err := s.Requeue(ctx, store.ParkedBatch{Action: "act", Filter: filter, Limit: 10})
				return err
			},
			"Checkpoint": func() error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Minute, Unpark: []store.Ref{{Offset: 1, ID: "a"}}})
			},
		},
		"outbox_cursors": {
			"Acquire":    func() error { _, err := s.Acquire(ctx, lane, "o", time.Minute); return err },
			"Cut":        func() error { _, err := s.Cut(ctx, "sink", 1, store.StartOldest); return err },
			"Membership": func() error { _, err := s.Membership(ctx); return err },
			"Checkpoint": func() error { return s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Minute}) },
			"Holders":    func() error { _, err := s.Holders(ctx, nil); return err },
			"Prune":      func() error { _, err := s.Prune(ctx, store.Pruning{Limit: 10}); return err },
			"Sample":     func() error { _, err := s.Sample(ctx, store.SampleQuery{}); return err },
			"Pause":      func() error { _, err := s.Pause(ctx, "act", "sink", true); return err },
		},
		"outbox": {
			"Cancel":      cancel,
			"RestoreScan": func() error { return s.RestoreScan(ctx) },
			"Types":       func() error { _, err := s.Types(ctx, 10); return err },
			"Oldest":      func() error { _, err := s.Oldest(ctx); return err },
			"Browse":      func() error { _, err := s.Browse(ctx, store.LogQuery{Offsets: 10, Limit: 10}); return err },
			"Trace":       func() error { _, err := s.Trace(ctx, store.TraceQuery{ID: "a"}); return err },
			"Prune":       func() error { _, err := s.Prune(ctx, store.Pruning{Limit: 10}); return err },
			"CountReplay": func() error { _, err := s.CountReplay(ctx, store.ReplayQuery{Sink: "sink", UpTo: 10}); return err },
			"Replay": func() error {
				_, err := s.Replay(ctx, store.ReplayBatch{Action: "act", ReplayQuery: store.ReplayQuery{Sink: "sink", UpTo: 10}, Limit: 10})
				return err
			},
		},
		"outbox_endpoints": {
			"AddEndpoint":    func() error { return s.AddEndpoint(ctx, nil, store.Endpoint{ID: "e"}, 10) },
			"Endpoints":      func() error { _, err := s.Endpoints(ctx, nil, store.EndpointQuery{}); return err },
			"EndpointCounts": func() error { _, err := s.EndpointCounts(ctx, 10); return err },
			"MarkEndpoints": func() error {
				tx, err := restricted.BeginTx(ctx, nil)
				require.NoError(t, err)
				defer tx.Rollback()
				_, err = s.MarkEndpoints(ctx, tx, store.EndpointMarks{Failing: []string{"e"}})
				return err
			},
		},
		"outbox_attempts": {
			"Attempts":     func() error { _, err := s.Attempts(ctx, store.AttemptQuery{Tenant: "a"}); return err },
			"AttemptHours": func() error { _, err := s.AttemptHours(ctx, "a", "e", time.Time{}); return err },
		},
		"outbox_keys": {
			"PrivateKeyOf":      func() error { _, _, err := s.PrivateKeyOf(ctx, nil, []string{"a"}); return err },
			"PrivateKeysByID":   func() error { _, err := s.PrivateKeysByID(ctx, []string{"a"}); return err },
			"PrivateKeysOf":     func() error { _, err := s.PrivateKeysOf(ctx, []string{""}); return err },
			"ErasedPrivateKeys": func() error { _, err := s.ErasedPrivateKeys(ctx); return err },
		},
		"outbox_forwarders": {
			"Membership": func() error { _, err := s.Membership(ctx); return err },
		},
		"outbox_receipts": {
			"ReceiptsOf": func() error {
				_, err := s.ReceiptsOf(ctx, []store.Ref{{Offset: 1, ID: "a"}})
				return err
			},
			"Trace":  func() error { _, err := s.Trace(ctx, store.TraceQuery{ID: "a"}); return err },
			"Traces": func() error { _, err := s.Traces(ctx, "sink"); return err },
		},
	}
	for table, named := range calls {
		exec(t, owner, `CREATE POLICY nothing ON `+table+` USING (false)`, `ALTER TABLE `+table+` ENABLE ROW LEVEL SECURITY`)
		for name, call := range named {
			require.ErrorIs(t, call(), store.ErrHidden, "%s with %s", name, table)
		}
		exec(t, owner, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
	}
	due, _, err := s.Due(ctx, store.DueQuery{Lane: lane, Now: time.Now().Add(time.Hour), Limit: 10})
	require.NoError(t, err)
	require.Len(t, due, 1, "the refused calls changed nothing")
}

// The text of an error may contain any characters. If the database could not store them, checkpoints would
// fail forever.
func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	admin := openDB(t, dsn)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			name := strings.TrimPrefix(u.Path, "/") + "_" + strings.ToLower(encoding)
			exec(t, admin, fmt.Sprintf(`CREATE DATABASE %s ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`, name, encoding))
			t.Cleanup(func() {
				_, err := admin.ExecContext(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`)
				require.NoError(t, err)
			})
			u.Path = "/" + name
			db := openDB(t, u.String())
			_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
			require.ErrorIs(t, err, store.ErrUnsupported)
			require.ErrorContains(t, err, encoding)
			require.ErrorContains(t, err, "ENCODING 'UTF8'")
			_, err = postgres.Open(t.Context(), db, postgres.Config{})
			require.ErrorIs(t, err, store.ErrUnsupported)
			require.ErrorContains(t, err, encoding)
		})
	}
}

func TestRolesWithTheGrantsOfTheirDutiesHaveEndpoints(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]postgres.Config{"one table": {}, "partitioned": {PartitionRows: 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			owner := openDB(t, dsn)
			openStore(t, owner, config)
			storetest.Duties(t, dialect(config, nil), func(t *testing.T, duty string) *sql.DB {
				role, address := newRole(t, owner, dsn)
				grants, err := postgres.Grants(config, role, postgres.Duty(duty))
				require.NoError(t, err)
				exec(t, owner, grants)
				return openDB(t, address)
			})
		})
	}
}
