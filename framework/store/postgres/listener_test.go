package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// patience is how long a test waits.
const patience = 30 * time.Second

// listenerName is the application_name of listening connections.
const listenerName = "waybill-listener"

// listen returns an outbox whose store listens at the database's address, changed by at if it is not nil.
func listen(t *testing.T, at func(*url.URL)) (*sql.DB, *postgres.Store) {
	t.Helper()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	q := address.Query()
	q.Set("application_name", listenerName)
	address.RawQuery = q.Encode()
	if at != nil {
		at(address)
	}
	s := openStore(t, db, postgres.Config{Listen: address.String()})
	s.SetListening(10*time.Second, time.Hour) // a machine that stalls looks like a server that does not answer
	return db, s
}

// listening is a running call of Listen, and what it reported.
type listening struct {
	wakes atomic.Int64
	lanes atomic.Int64  // of these, the news of lanes
	woken chan struct{} // keeps one value, like the forwarder
	ended chan error
	stop  context.CancelFunc
}

func startListening(t *testing.T, s *postgres.Store) *listening {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	e := &listening{woken: make(chan struct{}, 1), ended: make(chan error, 1), stop: stop}
	go func() {
		e.ended <- s.Listen(ctx, func(news store.News) {
			if news == store.NewsLanes {
				e.lanes.Add(1)
			}
			e.wakes.Add(1)
			select {
			case e.woken <- struct{}{}:
			default:
			}
		})
	}()
	return e
}

// startAwake starts listening until it wakes: a machine that stalls looks like a server that does not answer.
func startAwake(t *testing.T, s *postgres.Store) *listening {
	t.Helper()
	for start := time.Now(); ; {
		e := startListening(t, s)
		select {
		case <-e.woken:
			return e
		case err := <-e.ended:
			require.ErrorContains(t, err, "does not answer")
		case <-time.After(patience):
			t.Fatal("no news came")
		}
		require.Less(t, time.Since(start), patience, "no news came")
	}
}

func (e *listening) awaitWake(t *testing.T) {
	t.Helper()
	select {
	case <-e.woken:
	case err := <-e.ended:
		t.Fatalf("listening ended: %v", err)
	case <-time.After(patience):
		t.Fatal("no news came")
	}
}

func (e *listening) awaitEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(patience):
		t.Fatal("Listen has not ended")
		return nil
	}
}

func TestAnAnnouncementWakesListenersOfTheSameLog(t *testing.T) {
	t.Parallel()
	db, s := listen(t, nil)
	e := startListening(t, s)
	e.awaitWake(t) // it listens now; the first wake is for what it may have missed

	other, same := openStore(t, db, postgres.Config{Prefix: "other"}), openStore(t, db, postgres.Config{})
	for range 3 {
		require.NoError(t, other.Announce(t.Context()))
		require.NoError(t, same.Announce(t.Context()))
		e.awaitWake(t)
	}
	require.EqualValues(t, 4, e.wakes.Load(), "announcements come in order, so those of the other log woke nothing")
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestAReleasedLaneIsAnnounced(t *testing.T) {
	t.Parallel()
	_, s := listen(t, nil)
	held, err := lease(t, s, store.NewLane("mail", 0, 1))
	require.NoError(t, err)
	e := startListening(t, s)
	e.awaitWake(t)
	stale := held
	stale.Epoch--
	require.NoError(t, s.Release(t.Context(), stale))
	require.NoError(t, s.Release(t.Context(), held))
	e.awaitWake(t)
	require.NoError(t, s.Announce(t.Context()))
	e.awaitWake(t)
	require.EqualValues(t, 1, e.lanes.Load(), "the release of a lost lease is not announced")
	require.EqualValues(t, 3, e.wakes.Load())
}

func TestManyAnnouncementsBetweenTwoPingsAllArrive(t *testing.T) {
	t.Parallel()
	_, s := listen(t, nil)
	s.SetListening(time.Millisecond, patience) // many pings between the announcements
	e := startListening(t, s)
	e.awaitWake(t)
	for range 2000 {
		require.NoError(t, s.Announce(t.Context()))
	}
	for range 3 {
		require.NoError(t, s.Announce(t.Context()))
		e.awaitWake(t)
	}
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestAStoreWithoutAnAddressDoesNotListen(t *testing.T) {
	t.Parallel()
	s := openStore(t, newDB(t), postgres.Config{})
	require.NoError(t, s.Listen(t.Context(), func(store.News) { t.Error("woken") }))
}

func TestAnInvalidAddressForListeningIsRefusedWithoutQuotingIt(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	openStore(t, db, postgres.Config{})
	_, err := postgres.Open(t.Context(), db, postgres.Config{Listen: "postgres://me:hunter2@[/db"})
	require.ErrorContains(t, err, "listen")
	require.NotContains(t, err.Error(), "hunter2")
}

// The password may be a token: the server refuses an expired one and accepts the next.
func TestEachListeningConnectionAsksForItsAddress(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	addresses := make(chan string, 3)
	s := openStore(t, openDB(t, dsn), postgres.Config{ListenDSN: func(ctx context.Context) (string, error) {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		select {
		case address := <-addresses:
			return address, nil
		default:
			return "", errors.New("no token today")
		}
	}})
	s.SetListening(10*time.Second, time.Hour)
	require.ErrorContains(t, startListening(t, s).awaitEnd(t), "no token today")

	expired, err := url.Parse(dsn)
	require.NoError(t, err)
	expired.User = url.UserPassword("left-last-year", "hunter2")
	addresses <- expired.String()
	err = startListening(t, s).awaitEnd(t)
	var refusal *pq.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "28", string(refusal.Code.Class()), "invalid authorization")

	addresses <- "postgres://me:hunter2@[/db"
	err = startListening(t, s).awaitEnd(t)
	require.ErrorContains(t, err, "cannot be parsed")
	require.NotContains(t, err.Error(), "hunter2")

	addresses <- dsn
	e := startListening(t, s)
	e.awaitWake(t)
	require.NoError(t, s.Announce(t.Context()))
	e.awaitWake(t)
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestListeningUsesTheConfiguredDialer(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(postgrestest.DSN(t))
	require.NoError(t, err)
	db, server := openDB(t, address.String()), address.Host
	address.Host = "orders.cloud.invalid:5432"
	var dialled []string
	s := openStore(t, db, postgres.Config{
		Listen: address.String(),
		ListenDial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			return new(net.Dialer).DialContext(ctx, network, server)
		},
	})
	s.SetListening(10*time.Second, time.Hour)
	e := startListening(t, s)
	e.awaitWake(t)
	require.NoError(t, s.Announce(t.Context()))
	e.awaitWake(t)
	e.stop()
	require.NoError(t, e.awaitEnd(t))
	require.Equal(t, []string{"orders.cloud.invalid:5432"}, slices.Compact(dialled), "repeated on a slow machine")
}

func TestContradictorySettingsOfListeningAreRefused(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	openStore(t, db, postgres.Config{})
	ask := func(context.Context) (string, error) { return dsn, nil }
	_, err := postgres.Open(t.Context(), db, postgres.Config{Listen: dsn, ListenDSN: ask})
	require.ErrorContains(t, err, "Listen and ListenDSN")
	_, err = postgres.Open(t.Context(), db, postgres.Config{ListenDial: new(net.Dialer).DialContext})
	require.ErrorContains(t, err, "ListenDial has no address")
}

func TestListeningEndsWithTheReasonWhenItsBackendIsTerminated(t *testing.T) {
	t.Parallel()
	db, s := listen(t, nil)
	e := startListening(t, s)
	e.awaitWake(t)
	var terminated int
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`,
		listenerName).Scan(&terminated))
	require.Equal(t, 1, terminated)
	err := e.awaitEnd(t)
	var reason *pq.Error
	require.ErrorAs(t, err, &reason)
	require.Equal(t, "57P01", string(reason.Code), "admin_shutdown")

	e = startListening(t, s)
	e.awaitWake(t)
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestAListenerThatTheServerEndedBecauseItWasIdleListensAgain(t *testing.T) {
	t.Parallel()
	_, s := listen(t, func(u *url.URL) {
		q := u.Query()
		q.Set("idle_session_timeout", "2000") // long beside the pauses of a busy machine
		u.RawQuery = q.Encode()
	})
	e := startListening(t, s)
	e.awaitWake(t)
	e.awaitWake(t) // by another connection: no one announces anything
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestListeningEndsWithTheReasonIfTheAddressDoesNotAnswer(t *testing.T) {
	t.Parallel()
	_, s := listen(t, func(u *url.URL) { u.Host = "127.0.0.1:1" })
	e := startListening(t, s)
	var network *net.OpError
	require.ErrorAs(t, e.awaitEnd(t), &network)
	require.Empty(t, e.woken)
}

func TestASilentConnectionIsReplacedAndMissedRowsAreFound(t *testing.T) {
	t.Parallel()
	var p *postgrestest.Proxy
	db, s := listen(t, func(u *url.URL) {
		p = postgrestest.StartProxy(t, u.String())
		u.Host = p.Address()
	})
	s.SetListening(20*time.Millisecond, 3*time.Second)
	e := startAwake(t, s)

	p.Swallow()
	exec(t, db, `INSERT INTO outbox (type, payload) VALUES ('t', '{}')`)
	require.NoError(t, s.Announce(t.Context()))
	require.ErrorContains(t, e.awaitEnd(t), "the server does not answer")
	require.Empty(t, e.woken, "the announcement was lost")

	e = startListening(t, s) // the server accepts the connection but does not answer
	require.ErrorContains(t, e.awaitEnd(t), "the server does not answer")

	p.Forward()
	s.SetListening(20*time.Millisecond, patience)
	e = startListening(t, s)
	e.awaitWake(t)
	ids, _, _ := drain(t, s, nil)
	require.Len(t, ids, 1)
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

func TestListeningStopsAtOnceOnASilentConnection(t *testing.T) {
	t.Parallel()
	var p *postgrestest.Proxy
	_, s := listen(t, func(u *url.URL) {
		p = postgrestest.StartProxy(t, u.String())
		u.Host = p.Address()
	})
	s.SetListening(time.Millisecond, time.Hour)
	e := startListening(t, s)
	e.awaitWake(t)
	p.Swallow()
	awaitSwallowed(t, p) // a ping waits for its answer
	e.stop()
	require.NoError(t, e.awaitEnd(t))

	e = startListening(t, s)
	awaitSwallowed(t, p) // connecting waits for its answer
	e.stop()
	require.NoError(t, e.awaitEnd(t))
}

// Not parallel, since it checks all goroutines of the process.
func TestListeningLeavesNoGoroutines(t *testing.T) {
	var p *postgrestest.Proxy
	_, s := listen(t, func(u *url.URL) {
		p = postgrestest.StartProxy(t, u.String())
		u.Host = p.Address()
	})
	s.SetListening(50*time.Millisecond, patience)
	before := goleak.IgnoreCurrent()
	e := startListening(t, s)
	e.awaitWake(t)
	e.stop()
	require.NoError(t, e.awaitEnd(t))
	s.SetListening(50*time.Millisecond, 3*time.Second)
	e = startAwake(t, s)
	p.Swallow()
	require.Error(t, e.awaitEnd(t))
	require.NoError(t, p.Close())
	require.Error(t, startListening(t, s).awaitEnd(t))
	requireNoLeak(t, before)
}

func awaitSwallowed(t *testing.T, p *postgrestest.Proxy) {
	t.Helper()
	select {
	case <-p.Swallowed():
	case <-time.After(patience):
		t.Fatal("nothing was sent")
	}
}
