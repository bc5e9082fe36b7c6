package crashtest

import (
	"context"
	"os/exec"
)

// Nursery starts processes that end when this one does. It is for tests of programs that do not
// fit Run.
type Nursery struct{ starter *starter }

// NewNursery returns a Nursery. Close it after its last process has ended.
func NewNursery() *Nursery { return &Nursery{newStarter()} }

// Close ends the thread that starts processes.
func (n *Nursery) Close() { n.starter.stop() }

// Start starts a command. If it ends without Kill, fail is called.
func (n *Nursery) Start(command *exec.Cmd, name string, fail context.CancelCauseFunc) (kill func(), err error) {
	if err := n.starter.start(command); err != nil {
		return nil, err
	}
	return watch(command, name, func() {}, fail).kill, nil
}
