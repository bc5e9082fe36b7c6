// Beside measures how much a forwarder on MySQL or MariaDB slows down publishers. They publish all the
// time, and a forwarder, or a connection that only sends SELECT 1, works in every second window. So
// each figure is compared with those directly before and after it, which reduces the effect of other
// processes on the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

const (
	rate    = 500 // transactions/s
	clients = 16
	// settling is the time before a window, for opening connections and delivering the backlog.
	settling = 900 * time.Millisecond
	window   = time.Second
	asking   = 4 * time.Millisecond
)

func main() {
	rounds := flag.Int("rounds", 10, "windows with each of the two")
	flag.Parse()
	for _, family := range []mysqltest.Family{mysqltest.MariaDB, mysqltest.MySQL} {
		if err := compare(context.Background(), family, *rounds); err != nil {
			fmt.Fprintln(os.Stderr, "beside:", err)
			os.Exit(1)
		}
	}
}

// load is work on the database of the publishers, which ends when ctx is done.
type load struct {
	name string
	work func(ctx context.Context, dsn string) error
}

func loads() []load {
	return []load{
		{"Waybill", func(ctx context.Context, dsn string) error {
			to, err := receiver.New(receiver.Config{Kind: receiver.Nowhere, InFlight: 64, Capacity: 1 << 20})
			if err != nil {
				return err
			}
			return peer.WaybillForwarder{}.Relay("default", "").Deliver(ctx, dsn, to.Destination())
		}},
		{"SELECT 1 every 4 ms", func(ctx context.Context, dsn string) error { return peer.Ask(ctx, dsn, asking) }},
	}
}

func compare(ctx context.Context, family mysqltest.Family, rounds int) (err error) {
	server, err := mysqltest.Start(ctx, mysqltest.Options{Family: family, Private: true, Durable: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	name, _, err := server.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	dsn, outbox := server.URL(name), peer.InMySQL{Outbox: peer.Waybill{Silent: true}, Family: family}
	if err := outbox.Migrate(ctx, dsn); err != nil {
		return err
	}
	to, err := outbox.Open(ctx, dsn, clients)
	if err != nil {
		return err
	}
	p := &publishers{to: to}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	defer func() { end(); err = errors.Join(err, <-ended, to.Close()) }()

	shares, takes := make(map[string][]float64), make(map[string][]time.Duration)
	before, err := p.median(ctx, load{}, dsn)
	for range rounds {
		for _, l := range loads() {
			during, duringErr := p.median(ctx, l, dsn)
			after, afterErr := p.median(ctx, load{}, dsn)
			if err = errors.Join(err, duringErr, afterErr); err != nil {
				return err
			}
			shares[l.name] = append(shares[l.name], 2*during.Seconds()/(before+after).Seconds())
			takes[l.name], takes["nothing"] = append(takes[l.name], during), append(takes["nothing"], after)
			before = after
		}
	}
	fmt.Printf("%s: a transaction takes %s without other work\n", family, median(takes["nothing"]))
	for _, l := range loads() {
		fmt.Printf("%s: with %s it takes %s, %.2f times as long as in the windows before and after (%.2f)\n", family, l.name, median(takes[l.name]), median(shares[l.name]), shares[l.name])
	}
	return nil
}

func median[T float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// publishers publish at a steady rate.
type publishers struct {
	to peer.Publisher

	mu    sync.Mutex
	takes []time.Duration // durations of transactions since the last call of read
}

func (p *publishers) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	free, failed := make(chan struct{}, clients), make(chan error, clients)
	began := time.Now()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-time.After(time.Until(began.Add(time.Duration(number) * time.Second / rate))):
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			begin := time.Now()
			if _, err := p.to.Publish(context.WithoutCancel(ctx), number); err != nil {
				failed <- err
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.takes = append(p.takes, time.Since(begin))
		})
	}
}

func (p *publishers) read() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	takes := p.takes
	p.takes = nil
	return takes
}

// median returns the median duration of a transaction while l works.
func (p *publishers) median(ctx context.Context, l load, dsn string) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	if l.work == nil {
		stopped <- nil
	} else {
		go func() { stopped <- l.work(ctx, dsn) }()
	}
	time.Sleep(settling)
	p.read()
	time.Sleep(window)
	takes := p.read()
	stop()
	err := <-stopped
	if err == nil && len(takes) == 0 {
		err = errors.New("no transaction ended within a second")
	}
	if err != nil {
		return 0, err
	}
	return median(takes), nil
}
