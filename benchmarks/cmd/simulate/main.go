// Simulate runs fleets of forwarders in simulated time. It shows what happens when a forwarder dies,
// how many statements idle forwarders send, and what dead tenants cost the others. It prints tables,
// or writes them into a page, with plots beside it.
//
//	go run ./cmd/simulate --page ../docs/scaling.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/benchmarks/report"
)

// options are the values of the flags.
type options struct {
	sizes sizes
	page  string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	smoke := flags.Bool("smoke", false, "tiny fleets: checks that everything works")
	seed := flags.Uint64("seed", 1, "seed of the random numbers; equal seeds give equal results")
	flags.StringVar(&o.page, "page", "", "page whose generated part is replaced; its plots go into the folder of the same name; default: print the tables")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.sizes = defaultSizes()
	if *smoke {
		o.sizes = smokeSizes()
	}
	o.sizes.seed = *seed
	if flags.NArg() > 0 {
		return o, fmt.Errorf("arguments that are not flags: %q", flags.Args())
	}
	return o, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := simulate(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		stop()
		os.Exit(1)
	}
}

// chapter is a part of the page: its text with tables, and its plots.
type chapter struct {
	text  string
	plots map[string]report.Lines // by file name
}

// chapters are the parts of the page, in their order.
var chapters = []struct {
	name string
	run  func(ctx context.Context, s sizes) (chapter, error)
}{
	{"handover", handovers}, {"looks", looks}, {"tenants", tenants}, {"course", courses},
}

func simulate(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var text strings.Builder
	folder := strings.TrimSuffix(o.page, filepath.Ext(o.page))
	for _, c := range chapters {
		began := time.Now()
		chapter, err := c.run(ctx, o.sizes)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s took %s\n", c.name, time.Since(began).Round(time.Millisecond))
		text.WriteString(chapter.text)
		if o.page == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for file, plot := range chapter.plots {
			if err := report.DrawLines(plot, filepath.Join(folder, file)); err != nil {
				return err
			}
		}
	}
	if o.page == "" {
		fmt.Print(text.String())
		return nil
	}
	return report.WriteSimulated(strings.TrimRight(text.String(), "\n")+"\n", o.page)
}
