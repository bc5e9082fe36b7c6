package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
)

// busyLoops is the number of processes that keep the cores of a busy machine in use.
const busyLoops = 2

// onABusyMachine returns the same scenario with processes that keep the cores in use.
func onABusyMachine(s Scenario) Scenario {
	s.Name += "-busy"
	s.Title += ", on a busy machine"
	s.About += fmt.Sprintf(" Meanwhile %d other processes keep the cores busy.", busyLoops)
	contenders := s.Contenders
	s.Contenders = nil
	for _, c := range contenders {
		c.Run = besideLoops(c.Run)
		s.Contenders = append(s.Contenders, c)
	}
	return s
}

type run func(ctx context.Context, server *database.Server) (Sample, error)

func besideLoops(alone run) run {
	return func(ctx context.Context, server *database.Server) (_ Sample, err error) {
		loops, err := child.StartLoops(busyLoops)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, loops.Stop()) }()
		return alone(context.WithValue(ctx, loopsKey{}, loops.IDs()), server)
	}
}

// loopsKey is the context key of the ids of those processes, which the meter reads.
type loopsKey struct{}

func loopsBeside(ctx context.Context) []int {
	ids, _ := ctx.Value(loopsKey{}).([]int)
	return ids
}
