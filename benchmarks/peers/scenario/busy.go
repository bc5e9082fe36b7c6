package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
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
		alone := c.Run
		c.Run = func(ctx context.Context, server *database.Server) (_ Sample, err error) {
			loops, err := startLoops(busyLoops)
			defer func() { err = errors.Join(err, loops.stop()) }()
			if err != nil {
				return Sample{}, err
			}
			return alone(context.WithValue(ctx, loopsKey{}, loops.ids()), server)
		}
		s.Contenders = append(s.Contenders, c)
	}
	return s
}

// loops are processes that keep a core busy each.
type loops []*exec.Cmd

// startLoops starts n processes. They end with this one, even if it is killed. Stop the returned loops
// also after an error.
func startLoops(n int) (l loops, err error) {
	const loop = `while kill -0 "$1" 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done`
	for range n {
		command := exec.Command("sh", "-c", loop, "loop", fmt.Sprint(os.Getpid()))
		if err := command.Start(); err != nil {
			return l, err
		}
		l = append(l, command)
	}
	return l, nil
}

func (l loops) ids() (ids []int) {
	for _, command := range l {
		ids = append(ids, command.Process.Pid)
	}
	return ids
}

// stop ends the processes and waits for them.
func (l loops) stop() error {
	var problems []error
	for _, command := range l {
		problems = append(problems, command.Process.Kill())
		_ = command.Wait() // it was killed
	}
	return errors.Join(problems...)
}

// loopsKey is the context key of the ids of those processes, which the meter reads.
type loopsKey struct{}

func loopsBeside(ctx context.Context) []int {
	ids, _ := ctx.Value(loopsKey{}).([]int)
	return ids
}
