// Simulate runs fleets of forwarders in simulated time: what happens when one dies, what they ask of
// their databases while nothing happens, and what dead tenants cost the others. It prints tables, or
// writes them into a page, with plots beside it.
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

// options are what flags say.
type options struct {
	sizes sizes
	page  string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	smoke := flags.Bool("smoke", false, "tiny fleets: does everything work?")
	seed := flags.Uint64("seed", 1, "equal seeds have equal results")
	flags.StringVar(&o.page, "page", "", "page whose generated part is replaced; its plots go into a folder beside it that has the page's name; default: the tables are printed")
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

// chapter is one question, with its tables and plots.
type chapter struct {
	text  string
	plots map[string]report.Lines // by file
}

// chapters are the questions, in the order of the page.
var chapters = []struct {
	name   string
	answer func(ctx context.Context, s sizes) (chapter, error)
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
		chapter, err := c.answer(ctx, o.sizes)
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
