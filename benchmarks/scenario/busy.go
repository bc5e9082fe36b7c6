package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
)

// busyLoops is how many processes compute for nothing on a busy machine.
const busyLoops = 2

// onABusyMachine is the same work while other processes want the processor too.
func onABusyMachine(s Scenario) Scenario {
	s.Name += "-busy"
	s.Title += ", on a busy machine"
	s.About += fmt.Sprintf(" Meanwhile %d other processes compute for nothing.", busyLoops)
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

// loopsKey is where a context has the ids of the processes that keep the machine busy, for the meter.
type loopsKey struct{}

func loopsBeside(ctx context.Context) []int {
	ids, _ := ctx.Value(loopsKey{}).([]int)
	return ids
}
