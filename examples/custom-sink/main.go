// Custom-sink shows a destination of your own: pager.go is a sink kind with its
// configuration, for a service that Waybill has never heard of; pager_test.go runs
// the conformance suite against it. docs/writing-a-sink.md explains them line by
// line.
//
// Here the kind is offered beside Waybill's own, and alarms go to the pager. The
// desk that takes them is overrun at first, has a bad moment, and does not page
// people who have left.
//
//	go run ./examples/custom-sink
//
// It ends with code 1 if an alarm ends in another way than it should.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
)

// AlarmRaised is the notification.
type AlarmRaised struct {
	Whom string `json:"whom"`
	What string `json:"what"`
}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output says everything
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "custom-sink:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	desk, err := openDesk(moody())
	if err != nil {
		return err
	}
	defer desk.close()

	// The kinds that this program offers: one of Waybill's, and one of its own. In a
	// program with a configuration file the YAML is a part of it: see examples/own-program.
	kinds, err := sinks.NewSet(jsonlines.Kind(), Kind())
	if err != nil {
		return err
	}
	pager, err := kinds.Build("pager", sinks.Instance{Name: "on-call"}, func(config any) error {
		return yaml.Unmarshal([]byte(`address: "`+desk.address()+`"`), config)
	})
	if err != nil {
		return err
	}
	return forward(ctx, pager, out)
}

// moody is the desk's mood: it is overrun by the first call, has a bad moment when
// it is to page Alice, and knows that Bob has left.
func moody() func(page) string {
	var (
		mu            sync.Mutex
		overrun, late bool
	)
	return func(p page) string {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !overrun:
			overrun = true
			return "WAIT 200ms"
		case !late && strings.Contains(p.Text, "alice"):
			late = true
			return "LATER, we are at lunch"
		case strings.Contains(p.Text, "bob"):
			return "NO bob has left"
		}
		return "OK"
	}
}

// forward publishes three alarms and runs an engine until all of them have
// ended.
func forward(ctx context.Context, pager sinks.Sink, out io.Writer) error {
	folder, err := os.MkdirTemp("", "custom-sink")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "alarms.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[AlarmRaised](types, "alarm.raised"); err != nil {
		return err
	}

	ended := make(chan string, 10)
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"alarm.*": route.To("on-call")},
		Sinks: map[string]forwarder.Sink{"on-call": {
			Sink:  pager,
			Retry: forwarder.Retry{Initial: 50 * time.Millisecond},
			Hooks: reportTo(ended),
		}},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Publish(ctx, tx,
			outbox.With(AlarmRaised{"alice", "the cellar is wet"}, outbox.ID("alarm-1")),
			outbox.With(AlarmRaised{"bob", "the roof is dry"}, outbox.ID("alarm-2")),
			outbox.With(AlarmRaised{"carol", "the door is open"}, outbox.ID("alarm-3")),
		)
	})
	if err != nil {
		return err
	}

	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- engine.Run(forwarding) }()
	ends, err := collect(ctx, ended, 3)
	stop()
	if err := errors.Join(err, <-forwarded); err != nil {
		return err
	}
	for _, end := range ends {
		fmt.Fprintln(out, end)
	}
	return compare(ends)
}

// reportTo sends how deliveries ended. A hook runs in the transaction that settles
// them, so it must not wait: the channel has room for all.
func reportTo(ended chan<- string) forwarder.Hooks {
	return forwarder.Hooks{
		Delivered: func(_ context.Context, _ *sql.Tx, delivered []forwarder.Delivered) error {
			for _, d := range delivered {
				ended <- fmt.Sprintf("%s: delivered at attempt %d: %s", d.ID, d.Attempt, d.Receipt)
			}
			return nil
		},
		Dead: func(_ context.Context, _ *sql.Tx, dead []forwarder.Parked) error {
			for _, d := range dead {
				ended <- fmt.Sprintf("%s: dead after attempt %d: %s", d.ID, d.Attempt, d.Error)
			}
			return nil
		},
	}
}

func collect(ctx context.Context, ended <-chan string, n int) (ends []string, err error) {
	for len(ends) < n {
		select {
		case end := <-ended:
			ends = append(ends, end)
		case <-ctx.Done():
			return ends, fmt.Errorf("%d of %d alarms ended: %w", len(ends), n, ctx.Err())
		}
	}
	slices.Sort(ends)
	return ends, nil
}

// compare says what should have ended otherwise. The desk's wish to wait has
// cost no attempt, its bad moment one.
func compare(ends []string) error {
	var wrong []error
	for i, beginning := range []string{
		"alarm-1: delivered at attempt 2: page",
		"alarm-2: dead after attempt 1: permanent: bob has left",
		"alarm-3: delivered at attempt 1: page",
	} {
		if !strings.HasPrefix(ends[i], beginning) {
			wrong = append(wrong, fmt.Errorf("%q, not %q", ends[i], beginning))
		}
	}
	return errors.Join(wrong...)
}
