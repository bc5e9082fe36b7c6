package child

import (
	"errors"
	"io"

	"github.com/waybill-go/waybill/benchmarks/peer"
)

// Stages are processes that deliver the records of a topic.
type Stages struct {
	list  []*process
	ended chan struct{} // with room for all processes, so that no sender blocks
}

// StartStages starts n processes with the same stage. They deliver until Stop.
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

// IDs returns the ids of the processes.
func (s *Stages) IDs() (ids []int) {
	for _, p := range s.list {
		ids = append(ids, p.ID())
	}
	return ids
}

// Ended receives a value for each process that has ended. Before Stop, a process ends only with an
// error, which Stop returns.
func (s *Stages) Ended() <-chan struct{} { return s.ended }

// Stop stops the processes gracefully and waits until they have ended.
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
