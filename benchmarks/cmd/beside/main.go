// Beside says what a forwarder on MySQL or MariaDB costs publishers. They publish all the time, and a
// forwarder, or a connection that asks for nothing, comes and goes every two seconds. So each figure is
// compared with those just before and behind it, which helps where others use the machine too.
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
	// settling passes before a window counts: connections are made, what has come meanwhile is delivered.
	settling = 900 * time.Millisecond
	window   = time.Second
	asking   = 4 * time.Millisecond
)

func main() {
	rounds := flag.Int("rounds", 10, "how often each comes and goes")
	flag.Parse()
	for _, family := range []mysqltest.Family{mysqltest.MariaDB, mysqltest.MySQL} {
		if err := compare(context.Background(), family, *rounds); err != nil {
			fmt.Fprintln(os.Stderr, "beside:", err)
			os.Exit(1)
		}
	}
}

// guest works beside the publishers until ctx is done.
type guest struct {
	name string
	work func(ctx context.Context, dsn string) error
}

func guests() []guest {
	return []guest{
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
	before, err := p.median(ctx, guest{}, dsn)
	for range rounds {
		for _, g := range guests() {
			beside, besideErr := p.median(ctx, g, dsn)
			after, afterErr := p.median(ctx, guest{}, dsn)
			if err = errors.Join(err, besideErr, afterErr); err != nil {
				return err
			}
			shares[g.name] = append(shares[g.name], 2*beside.Seconds()/(before+after).Seconds())
			takes[g.name], takes["nothing"] = append(takes[g.name], beside), append(takes["nothing"], after)
			before = after
		}
	}
	fmt.Printf("%s: a transaction takes %s beside nothing\n", family, middle(takes["nothing"]))
	for _, g := range guests() {
		fmt.Printf("%s: beside %s %s; %.2f times what it takes before and behind (%.2f)\n", family, g.name, middle(takes[g.name]), middle(shares[g.name]), shares[g.name])
	}
	return nil
}

func middle[T float64 | time.Duration](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// publishers make transactions at a steady rate.
type publishers struct {
	to peer.Publisher

	mu    sync.Mutex
	takes []time.Duration // since they were read last
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

// median is what a transaction takes while a guest works.
func (p *publishers) median(ctx context.Context, g guest, dsn string) (time.Duration, error) {
	ctx, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	if g.work == nil {
		left <- nil
	} else {
		go func() { left <- g.work(ctx, dsn) }()
	}
	time.Sleep(settling)
	p.read()
	time.Sleep(window)
	takes := p.read()
	leave()
	err := <-left
	if err == nil && len(takes) == 0 {
		err = errors.New("no transaction ended within a second")
	}
	if err != nil {
		return 0, err
	}
	return middle(takes), nil
}
