package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a database with a row for each forwarder, and a lease that it has until it is evicted.
type server struct {
	mu       sync.Mutex
	random   *rand.Rand
	faults   bool
	slow     map[string]time.Duration // each way, by owner
	sessions map[string]*session      // that hold their lock, by id
	rows     map[string]string        // by owner
	epochs   map[string]int           // of the leases of an owner: rises with each eviction
	opened   int
}

func newServer(seed uint64, owners ...string) *server {
	s := &server{random: rand.New(rand.NewPCG(seed, 0)), sessions: make(map[string]*session), rows: make(map[string]string), epochs: make(map[string]int), slow: make(map[string]time.Duration)}
	for _, o := range owners {
		s.rows[o] = ""
	}
	return s
}

var errNetwork = errors.New("connection reset by peer")

// call takes some time before and after a statement, during which other things happen. A fault is that it takes
// longer than anyone trusts, or that the statement or its answer is lost.
func (s *server) call(ctx context.Context, owner string, do func()) error {
	lost := s.pass(ctx, owner)
	if ctx.Err() != nil || lost {
		return errNetwork
	}
	s.mu.Lock()
	do()
	s.mu.Unlock()
	if s.pass(ctx, owner) || ctx.Err() != nil {
		return errNetwork
	}
	return nil
}

func (s *server) pass(ctx context.Context, owner string) (lost bool) {
	s.mu.Lock()
	d := time.Duration(s.random.IntN(int(20 * time.Millisecond)))
	if s.faults && owner != "c" { // someone notices what happens to the others
		switch s.random.IntN(20) {
		case 0:
			lost = true
		case 1, 2:
			d = time.Duration(s.random.Int64N(int64(3 * Doubt)))
		case 3, 4, 5, 6, 7, 8:
			d = time.Duration(s.random.Int64N(int64(Trust)))
		}
	}
	d += s.slow[owner]
	s.mu.Unlock()
	pace.Sleep(ctx, d)
	return lost
}

func (s *server) OpenPresence(ctx context.Context, owner string) (store.Presence, error) {
	p := &session{server: s, owner: owner}
	return p, s.call(ctx, owner, func() {
		s.opened++
		p.id = fmt.Sprint("session ", s.opened)
		s.sessions[p.id] = p
	})
}

// session is a session of the server that holds its lock until it ends.
type session struct {
	*server
	owner, id string
}

func (p *session) Beat(ctx context.Context) (gone []store.Gone, err error) {
	alive := false
	err = p.call(ctx, p.owner, func() {
		alive = p.sessions[p.id] == p
		for owner, presence := range p.rows {
			if owner != p.owner && presence != "" && presence[0] != '-' && p.sessions[presence] == nil {
				gone = append(gone, store.Gone{Owner: owner, Presence: presence})
			}
		}
	})
	if err == nil && !alive {
		err = errNetwork
	}
	return gone, err
}

func (p *session) Declare(ctx context.Context) (declared bool, err error) {
	err = p.call(ctx, p.owner, func() {
		if _, declared = p.rows[p.owner]; declared {
			p.rows[p.owner] = p.id
		}
	})
	return declared, err
}

func (p *session) Withdraw(ctx context.Context) (held bool, err error) {
	err = p.call(ctx, p.owner, func() {
		if p.rows[p.owner] == p.id {
			p.rows[p.owner] = "-" + p.id
		}
		held = p.rows[p.owner] == "-"+p.id
	})
	return held, err
}

func (p *session) Evict(ctx context.Context, other store.Gone) (evicted bool, err error) {
	err = p.call(ctx, p.owner, func() {
		if evicted = p.rows[other.Owner] == other.Presence; evicted {
			p.epochs[other.Owner]++
			delete(p.rows, other.Owner)
		}
	})
	return evicted, err
}

func (p *session) Close() error {
	p.end()
	return nil
}

func (p *session) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, p.id)
}

// endAny ends one of the sessions, as pg_terminate_backend does.
func (s *server) endAny() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.sessions {
		delete(s.sessions, id)
		return
	}
}

func (s *server) epoch(owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epochs[owner]
}

// beat makes the row again that an eviction has removed, as a heartbeat does.
func (s *server) heartbeat(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.rows[owner]; !exists {
		s.rows[owner] = ""
	}
}

func (s *server) keeper(owner string) *Keeper {
	k := New(Config{Store: s, Owner: owner, Lease: 15 * time.Second, Freed: func() {}, Logger: slog.New(slog.DiscardHandler)})
	k.trouble = pace.NewTrouble(k.Logger, "", again) // more sessions, more faults
	return k
}

// deliver begins a delivery at each tick at which the gate is open. It fails if the lease was lost then.
func (s *server) deliver(ctx context.Context, t *testing.T, k *Keeper) (began int) {
	for ctx.Err() == nil {
		s.heartbeat(k.Owner)
		term, epoch := k.Term(), s.epoch(k.Owner)
		for pace.Sleep(ctx, 7*time.Millisecond) {
			open, over := term.Check(time.Now(), func() {})
			if over {
				break
			}
			if open {
				began++
				if s.epoch(k.Owner) != epoch {
					t.Errorf("%s began a delivery after its eviction", k.Owner)
					return began
				}
			}
		}
	}
	return began
}

func TestNoDeliveryBeginsAfterAnEvictionWhateverFails(t *testing.T) {
	t.Parallel()
	evictions := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			owners := []string{"a", "b", "c"}
			s := newServer(seed, owners...)
			s.faults = true
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			began := make([]int, len(owners))
			for i, owner := range owners {
				k := s.keeper(owner)
				running.Go(func() { k.Run(ctx) })
				running.Go(func() { began[i] = s.deliver(ctx, t, k) })
			}
			for range 60 {
				time.Sleep(time.Second)
				s.endAny()
				s.mu.Lock()
				clear(s.slow)
				s.slow[owners[s.random.IntN(len(owners))]] = time.Duration(s.random.Int64N(int64(Doubt)))
				delete(s.slow, "c")
				s.mu.Unlock()
			}
			s.mu.Lock()
			s.faults = false
			clear(s.slow)
			s.mu.Unlock()
			time.Sleep(time.Minute)
			stop()
			running.Wait()
			for i, owner := range owners {
				evictions += s.epoch(owner)
				require.Greater(t, began[i], 60*100, "a presence that cannot be kept does not keep %s from delivering", owner)
				require.Equal(t, byte('s'), s.rows[owner][0], "and is there again once nothing fails")
			}
		})
	}
	require.Greater(t, evictions, 5, "the faults are hard enough")
}

func TestAForwarderThatIsGoneIsEvictedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "a", "b")
		ctx, stop := context.WithCancel(t.Context())
		dying, kill := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { s.keeper("a").Run(dying) })
		running.Go(func() { s.keeper("b").Run(ctx) })
		time.Sleep(time.Minute)
		require.Zero(t, s.epoch("a"))
		kill()
		time.Sleep(Trust)
		require.Zero(t, s.epoch("a"), "a delivery may have begun until now")
		time.Sleep(time.Second)
		require.Equal(t, 1, s.epoch("a"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.epoch("a"))
		require.Zero(t, s.epoch("b"))
		stop()
		running.Wait()
	})
}

func TestNobodyIsEvictedWhoLosesItsSessionAndReachesTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(2, "a", "b")
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, owner := range []string{"a", "b"} {
			k := s.keeper(owner)
			running.Go(func() { k.Run(ctx) })
			running.Go(func() { s.deliver(ctx, t, k) })
		}
		for range 100 {
			time.Sleep(1700 * time.Millisecond)
			s.endAny()
		}
		require.Zero(t, s.epoch("a")+s.epoch("b"))
		stop()
		running.Wait()
	})
}

func TestNobodyIsEvictedWhoseWayToTheDatabaseIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(3, "a", "b")
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		began := 0
		a, b := s.keeper("a"), s.keeper("b")
		running.Go(func() { a.Run(ctx) })
		running.Go(func() { b.Run(ctx) })
		running.Go(func() { began = s.deliver(ctx, t, a) })
		for i := range 60 {
			time.Sleep(10 * time.Second)
			s.mu.Lock()
			s.slow["a"] = time.Duration(i%3) * 2 * Doubt
			s.mu.Unlock()
		}
		require.Zero(t, s.epoch("a")+s.epoch("b"))
		stop()
		running.Wait()
		require.Greater(t, began, 60*1000, "of which the slow withdrawals cost a part")
	})
}

// slowAnswers is a session that takes some time for each answer, and after some answers gives none any more.
type slowAnswers struct {
	after   time.Duration
	answers int
	asked   time.Time // the last question that was answered
}

func (s *slowAnswers) OpenPresence(context.Context, string) (store.Presence, error) { return s, nil }

func (s *slowAnswers) Beat(ctx context.Context) ([]store.Gone, error) {
	asked := time.Now()
	if s.answers--; s.answers < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	pace.Sleep(ctx, s.after)
	s.asked = asked
	return nil, nil
}

func (*slowAnswers) Declare(context.Context) (bool, error) { return true, nil }

// Withdraw fails as long as the database cannot be reached.
func (*slowAnswers) Withdraw(context.Context) (bool, error) { return false, errNetwork }

func (*slowAnswers) Evict(context.Context, store.Gone) (bool, error) { return false, nil }

func (*slowAnswers) Close() error { return nil }

func TestAnAnswerCountsFromWhenItWasAsked(t *testing.T) {
	t.Parallel()
	for _, answers := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			s := &slowAnswers{after: Trust / 3, answers: answers}
			k := New(Config{Store: s, Owner: "a", Lease: 15 * time.Second, Freed: func() {}, Logger: slog.New(slog.DiscardHandler)})
			var running sync.WaitGroup
			running.Go(func() { k.Run(ctx) })
			time.Sleep(time.Duration(answers)*s.after + time.Millisecond) // a question follows an answer that took longer than a beat
			synctest.Wait()
			open := func() bool {
				open, _ := k.Term().Check(time.Now(), func() {})
				return open
			}
			time.Sleep(time.Until(s.asked.Add(Trust)) - time.Millisecond)
			require.True(t, open())
			time.Sleep(2 * time.Millisecond)
			require.False(t, open(), "after %d answers", answers)
			stop()
			running.Wait()
		})
	}
}

func TestAPromiseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	require.False(t, expired(now, now.Add(time.Second)))
	require.True(t, expired(now.Add(2*time.Second), now.Add(time.Second)))
	suspended := now.Add(2 * time.Second).Round(0) // only the wall clock went on
	require.True(t, expired(suspended, now.Add(time.Second)))
	back := setBack(now.Add(2*time.Second), 3600)
	require.Equal(t, 2*time.Second, back.Sub(now), "the monotonic clock")
	require.True(t, back.Round(0).Before(now.Round(0)))
	require.True(t, expired(back, now.Add(time.Second)))
	require.False(t, expired(back, now.Add(3*time.Second)))
}

// setBack sets only the wall clock of a time back, whose seconds begin at bit 30 of the first word of a time.Time.
func setBack(t time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= seconds << 30
	return t
}

func TestALaneWaitsForTheGateAndIsToldWhenItOpens(t *testing.T) {
	t.Parallel()
	var g Gate
	now, told := time.Now(), 0
	term := g.Term()
	check := func(wanted string) {
		t.Helper()
		open, over := term.Check(now, func() { told++ })
		require.Equal(t, wanted, map[[2]bool]string{{true, false}: "open", {false, false}: "shut", {false, true}: "over"}[[2]bool{open, over}])
	}
	check("open")
	g.Promise(now.Add(time.Second))
	check("open")
	now = now.Add(2 * time.Second)
	check("shut")
	require.Zero(t, told)
	g.Promise(now.Add(time.Second))
	require.Equal(t, 1, told)
	check("open")
	now = now.Add(2 * time.Second)
	check("shut")
	g.Free()
	require.Equal(t, 2, told)
	check("open")
	g.Promise(now.Add(-time.Second))
	check("shut")
	g.Evicted()
	require.Equal(t, 3, told)
	check("over")
	term = g.Term()
	check("open")
	var none *Gate
	term = none.Term()
	check("open")
}
