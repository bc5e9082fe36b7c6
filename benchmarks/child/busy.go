package child

import (
	"context"
	"errors"
)

// Loops are processes that keep cores busy.
type Loops []*process

// StartLoops keeps n cores busy until Stop.
func StartLoops(n int) (loops Loops, err error) {
	for range n {
		p, err := start(task{Busy: true})
		if err != nil {
			return nil, errors.Join(err, loops.Stop())
		}
		loops = append(loops, p)
	}
	return loops, nil
}

// IDs returns the ids of the processes.
func (l Loops) IDs() (ids []int) {
	for _, p := range l {
		ids = append(ids, p.ID())
	}
	return ids
}

// Stop stops the processes and waits until they have ended.
func (l Loops) Stop() error {
	var problems []error
	for _, p := range l {
		problems = append(problems, p.input.Close())
	}
	for _, p := range l {
		problems = append(problems, p.wait())
	}
	return errors.Join(problems...)
}

// spin uses a core until ctx is done.
func spin(ctx context.Context) {
	for n := uint64(1); n%(1<<20) != 0 || ctx.Err() == nil; n++ {
	}
}
