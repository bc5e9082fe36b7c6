package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// node is a process with a forwarder.
type node struct {
	*forwarder.Forwarder
	world  *world
	name   string
	number int
	port   *virtual
	db     *sql.DB
	stop   context.CancelFunc
	died   chan struct{} // closed when it is killed
	ended  chan struct{} // closed when Run has returned
	sinks  map[string]forwarder.Sink

	reloading chan struct{} // has a value during a reload

	mu      sync.Mutex
	leaving bool
	paused  time.Time // until then
	armed   []*armed
}

// armed is a fault that waits for a statement.
type armed struct {
	place, mode string
	left        int // statements until then
	delay       time.Duration
}

var errFault = errors.New("connection reset")

// start starts a process, unless it runs.
func (w *world) start(o op) {
	if n := w.nodes[o.Node]; n != nil && n.alive() || len(w.routes) == 0 {
		return
	}
	n := &node{world: w, number: o.Node, name: fmt.Sprintf("node %d (process %d)", o.Node, len(w.all)+1), died: make(chan struct{}), ended: make(chan struct{}), reloading: make(chan struct{}, 1)}
	n.port = &virtual{disturb: n.disturb, starved: func() { w.goesWrong(n, 0) }}
	n.db = w.file.open(n.port)
	w.nodes[o.Node], w.all = n, append(w.all, n)
	n.build()
	w.count("start")
	if o.N > 1 {
		w.count("another number of lanes")
	}
	w.background.Go(func() {
		defer close(n.ended)
		defer func() { _ = n.db.Close() }()
		n.run(o.N)
	})
	time.Sleep(time.Millisecond)
}

// run runs the forwarder, once its database can be opened.
func (n *node) run(lanes int) {
	w := n.world
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	n.mu.Lock()
	n.stop = stop
	n.mu.Unlock()
	var s *sqlite.Store
	for {
		var err error
		if s, err = sqlite.Open(ctx, n.db, sqlite.Config{Receipts: true}); err == nil {
			break
		}
		if n.isLeaving() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	configured, routes := n.configured()
	c := forwarder.Config{
		Store: s, Name: fmt.Sprint("node-", n.number), Sinks: configured, Routes: routes, Lanes: max(lanes, 1),
		Poll: time.Second, Lease: 15 * time.Second, ShutdownTimeout: 2 * time.Second,
		Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, Logger: w.logger(n),
	}
	if w.prunes {
		c.Retention = 20 * time.Second
	}
	f, err := forwarder.New(c)
	if err != nil {
		w.breaks("%s: %v", n, err)
		return
	}
	n.mu.Lock()
	n.Forwarder = f
	n.mu.Unlock()
	if err := f.Run(ctx); err != nil && !n.port.dead.Load() {
		w.breaks("%s ended with %v", n, err)
	} else if !n.isLeaving() {
		w.breaks("%s ended by itself", n)
	}
}

func (n *node) String() string { return n.name }

func (w *world) logger(n *node) *slog.Logger {
	if w.logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.String("", fmt.Sprintf("%9.3f %s", a.Value.Time().Sub(w.began).Seconds(), n))
		}
		return a
	}}))
}

// currentRoutes are those of the next start or reload. Each sink has one, unless the configuration lacks it.
func (w *world) currentRoutes() route.Routes {
	w.mu.Lock()
	defer w.mu.Unlock()
	routes := make(route.Routes)
	if !w.only {
		routes["never"] = route.To(w.sinks...)
	}
	if len(w.routes) > 0 {
		for pattern, to := range w.routes[len(w.routes)-1] {
			routes[pattern] = route.To(to...)
		}
	}
	return routes
}

// configured returns the sinks and routes of the next start or reload.
func (n *node) configured() (map[string]forwarder.Sink, route.Routes) {
	to, routes := make(map[string]forwarder.Sink), n.world.currentRoutes()
	for _, rules := range routes {
		for _, r := range rules {
			to[r.Sink] = n.sinks[r.Sink]
		}
	}
	return to, routes
}

func (n *node) alive() bool {
	select {
	case <-n.ended:
		return false
	case <-n.died:
		return false
	default:
		return !n.isLeaving()
	}
}

func (n *node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}

// leave stops the process gracefully.
func (n *node) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaving = true
	if n.stop != nil {
		n.stop()
	}
}

// die kills the process: none of its statements is done any more, and its deliveries reach no one.
func (n *node) die() {
	if n.port.dead.Swap(true) {
		return
	}
	n.world.goesWrong(n, 0)
	close(n.died)
	n.leave()
}

func (n *node) do(o op) {
	w := n.world
	switch o.Do {
	case "end":
		w.count("end")
		n.leave()
	case "kill":
		w.count("kill")
		n.die()
	case "pause":
		w.count("pause")
		w.goesWrong(n, o.For)
		n.mu.Lock()
		n.paused = time.Now().Add(o.For)
		n.mu.Unlock()
	case "fault":
		place, mode, _ := strings.Cut(o.Mode, "-")
		n.mu.Lock()
		n.armed = append(n.armed, &armed{place, mode, o.N, o.For})
		n.mu.Unlock()
	case "reload":
		n.reload(o.Mode)
	}
}

// reload gives the process the current routes, with the same sinks or with other ones.
func (n *node) reload(mode string) {
	n.mu.Lock()
	f := n.Forwarder
	n.mu.Unlock()
	if f == nil {
		return
	}
	if mode == "fresh" {
		n.build()
	}
	configured, routes := n.configured()
	n.world.count("reload " + mode)
	n.world.background.Go(func() {
		n.reloading <- struct{}{} // in the bubble's time, unlike a mutex
		defer func() { <-n.reloading }()
		if err := f.Reload(n.world.ctx, configured, routes); err != nil && !errors.Is(err, forwarder.ErrNotRunning) {
			n.world.breaks("%s: reload: %v", n, err)
		}
	})
}

// waitPaused waits while the process is paused, or until a context ends.
func (n *node) waitPaused(ctx context.Context) {
	for {
		n.mu.Lock()
		left := time.Until(n.paused)
		n.mu.Unlock()
		if left <= 0 || n.port.dead.Load() || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-n.died:
		case <-time.After(min(left, time.Second)):
		}
	}
}

// disturb is what goes wrong with a statement.
func (n *node) disturb(ctx context.Context, s statement) (after func() error, err error) {
	w := n.world
	switch {
	case !s.within: // a connection may wait longer than its context
		n.waitPaused(context.Background())
	case n.number%2 == 0: // it stops all writers; database/sql waits in a way that stops the bubble's time
		n.mu.Lock()
		left := time.Until(n.paused)
		n.mu.Unlock()
		if left > 0 {
			w.goesWrong(nil, left)
		}
		n.waitPaused(ctx)
	}
	w.mu.Lock()
	trouble := w.trouble
	w.mu.Unlock()
	if left := time.Until(trouble.until); left > 0 {
		if trouble.silent {
			_ = takesTime(ctx, left)
		}
		return nil, cmp.Or(ctx.Err(), errFault)
	}
	if time.Until(trouble.slow) > 0 {
		if err := takesTime(ctx, time.Duration(rand.Int64N(int64(trouble.pause)+1))); err != nil {
			return nil, err
		}
	}
	a := n.fires(s)
	if a == nil {
		return nil, nil
	}
	w.count("fault " + a.place + "-" + a.mode)
	of := n
	if s.within { // others wait for its lock
		of = nil
	}
	w.goesWrong(of, a.delay)
	switch a.mode {
	case "fails":
		return nil, errFault
	case "lost":
		return func() error { return errFault }, nil
	case "delayed":
		return nil, takesTime(ctx, a.delay)
	case "dies-before":
		n.die()
		return nil, errKilled
	default:
		return func() error {
			n.die()
			return errKilled
		}, nil
	}
}

// fires returns the fault of a statement, if it has one.
func (n *node) fires(s statement) *armed {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, a := range n.armed {
		if a.place == "write" && s.kind == writes || a.place == "begin" && s.kind == begins || a.place == "commit" && s.kind == commits {
			if a.left--; a.left <= 0 {
				n.armed = slices.Delete(n.armed, i, i+1)
				return a
			}
		}
	}
	return nil
}
