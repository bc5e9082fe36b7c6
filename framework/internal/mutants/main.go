// Mutants plants defects in the product, one at a time, and reports which of them no test notices.
//
//	go run ./framework/internal/mutants [flags] [names or regular expressions]
//
// Each file in the folder patches is a defect: a diff below a head that says what is wrong, and which tests are the
// cheapest that should fail. It is applied to a copy of a file, which an overlay of the go command puts in place of
// the file, so the tree never changes. To write a new one, edit the file, put what `git diff` prints below a head into
// patches/NAME.patch, and restore the file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	root         string // folder of the module
	atOnce       int
	of           int    // 0: all
	seed         uint64 // 0: a random one
	limit        time.Duration
	check, renew bool
}

func main() {
	o := options{root: "."}
	flag.IntVar(&o.atOnce, "at-once", 2, "suites that run at once")
	flag.IntVar(&o.of, "of", 0, "run that many mutants, drawn at random (default: all)")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the draw (default: a random one)")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "time limit of a suite")
	flag.BoolVar(&o.check, "check", false, "first run the suites without mutants: they must pass")
	flag.BoolVar(&o.renew, "renew", false, "write the patches again whose surroundings have changed, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, names []string, out io.Writer) error {
	mutants, err := readAll(o.root, names)
	if err != nil {
		return err
	}
	if o.renew {
		for _, m := range mutants {
			renewed, failed := m.renew(ctx, o.root)
			if renewed {
				fmt.Fprintf(out, "%s is written again: read it\n", m.name)
			}
			err = errors.Join(err, failed)
		}
		return err
	}
	if o.of > 0 && o.of < len(mutants) {
		if o.seed == 0 {
			o.seed = rand.Uint64()
		}
		fmt.Fprintf(out, "%d of %d mutants, drawn with -seed %d\n", o.of, len(mutants), o.seed)
		mutants = draw(mutants, o.of, o.seed)
	}
	if o.check {
		if err := o.hunt(ctx, unchanged(mutants), survived, out); err != nil {
			return err
		}
	}
	return o.hunt(ctx, mutants, killed, out)
}

// draw returns n of the mutants, the same ones for the same seed.
func draw(mutants []mutant, n int, seed uint64) []mutant {
	drawn := slices.Clone(mutants)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn[:n]
}

// unchanged returns the product itself once for each suite of the mutants. A suite that fails anyway kills everything.
func unchanged(mutants []mutant) (products []mutant) {
	for _, m := range mutants {
		if !slices.ContainsFunc(products, func(p mutant) bool { return p.suite == m.suite }) {
			products = append(products, mutant{name: "without a mutant: " + m.suite.String(), suite: m.suite})
		}
	}
	return products
}

// hunt runs the suite of each mutant, and returns an error unless all have the wanted outcome.
func (o options) hunt(ctx context.Context, mutants []mutant, wanted string, out io.Writer) error {
	var mu sync.Mutex
	var workers sync.WaitGroup
	var others []string
	next := 0
	for range o.atOnce {
		workers.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for next < len(mutants) && ctx.Err() == nil {
				m := mutants[next]
				next++
				mu.Unlock()
				began := time.Now()
				outcome, why := m.run(ctx, o.root, o.limit)
				took := time.Since(began).Seconds()
				mu.Lock()
				if outcome != wanted {
					others = append(others, m.name)
					why = strings.ReplaceAll("\n"+m.defect+"\n"+m.suite.String()+"\n"+why, "\n", "\n\t")
				}
				fmt.Fprintf(out, "%5.1f s  %-8s  %s  %s\n", took, outcome, m.name, why)
			}
		})
	}
	workers.Wait()
	fmt.Fprintf(out, "%d of %d: %s\n", next-len(others), len(mutants), wanted)
	if len(others) > 0 {
		return fmt.Errorf("not %s: %s", wanted, strings.Join(others, ", "))
	}
	return ctx.Err()
}
