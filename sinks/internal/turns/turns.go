//go:build unix

// Package turns compares ways to do the same work in benchmarks.
package turns

import (
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Contender is one of the ways that are compared.
type Contender struct {
	Name string
	Do   func(n int) // makes n calls
	Part int         // if not 0, it makes 1/Part of the calls, so that a slow contender takes no longer
}

// Compare lets each contender make calls for each of b.N, in turn, so that the ratios are valid on
// a busy machine. For each contender it reports medians of the turns: the calls in a second, the
// processor time of a call, and the ratio of both to the first contender: 1 is equal, and more is
// better. Processor time is that of this process, including a server in it. Its ratios are more
// reliable if other processes use the machine.
func Compare(b *testing.B, calls int, contenders ...Contender) {
	const turns = 9
	elapsed, used := make([][]float64, len(contenders)), make([][]float64, len(contenders))
	n := max(1, b.N/turns) * calls
	for _, c := range contenders {
		c.Do(1) // connects
	}
	b.ResetTimer()
	for turn := range turns {
		for i := range contenders {
			which := (i + turn) % len(contenders)
			begin, usedBefore := time.Now(), processorTime(b)
			part := max(1, contenders[which].Part)
			contenders[which].Do(max(1, n/part))
			elapsed[which] = append(elapsed[which], time.Since(begin).Seconds()*float64(part))
			used[which] = append(used[which], (processorTime(b)-usedBefore)*float64(part))
		}
	}
	for i, c := range contenders {
		b.ReportMetric(float64(n)/median(elapsed[i]), c.Name+"/s")
		b.ReportMetric(median(used[i])/float64(n)*1e6, c.Name+"-us")
		ratios, cost := make([]float64, turns), make([]float64, turns)
		for turn := range turns {
			ratios[turn] = elapsed[0][turn] / elapsed[i][turn]
			cost[turn] = used[0][turn] / used[i][turn]
		}
		b.ReportMetric(median(ratios), c.Name+"-ratio")
		b.ReportMetric(median(cost), c.Name+"-us-ratio")
	}
	b.ReportMetric(0, "ns/op") // hides the time of all contenders together
}

// Split returns a function that splits n calls among workers, which are numbered from 0.
func Split(b *testing.B, workers int, call func(worker int) error) func(n int) {
	return func(n int) {
		var left atomic.Int64
		left.Store(int64(n))
		var group errgroup.Group
		for worker := range workers {
			group.Go(func() error {
				for left.Add(-1) >= 0 {
					if err := call(worker); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// processorTime is the processor time of this process in seconds.
func processorTime(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
