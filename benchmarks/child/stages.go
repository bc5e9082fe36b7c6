package child

import (
	"errors"
	"io"

	"github.com/waybill-go/waybill/benchmarks/peer"
)

// Stages are processes that deliver what a topic holds.
type Stages struct {
	list  []*process
	ended chan struct{} // has room for all
}

// StartStages starts n processes of a kind. They work until Stop.
func StartStages(s peer.Stage, n int) (*Stages, error) {
	stages := &Stages{ended: make(chan struct{}, n)}
	for range n {
		p, err := start(task{Stage: &s})
		if err != nil {
			return nil, errors.Join(err, stages.Stop())
		}
		stages.list = append(stages.list, p)
		go func() {
			_, _ = io.Copy(io.Discard, p.output) // ends with the process
			stages.ended <- struct{}{}
		}()
	}
	return stages, nil
}

// IDs are the processes'.
func (s *Stages) IDs() (ids []int) {
	for _, p := range s.list {
		ids = append(ids, p.ID())
	}
	return ids
}

// Ended delivers a value for each process that has ended. It is for those who wait for their
// work: none ends by itself but by an error, which Stop returns.
func (s *Stages) Ended() <-chan struct{} { return s.ended }

// Stop stops them in order and returns when they have ended.
func (s *Stages) Stop() error {
	var problems []error
	for _, p := range s.list {
		problems = append(problems, p.input.Close())
	}
	for _, p := range s.list {
		problems = append(problems, p.wait())
	}
	s.list = nil
	return errors.Join(problems...)
}
