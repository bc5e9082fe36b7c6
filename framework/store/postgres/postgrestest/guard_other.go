//go:build !unix

package postgrestest

import (
	"context"
	"errors"
	"os"
)

// guard ends a cluster when it is released. Without a Unix shell, a killed process leaves its
// cluster behind.
type guard struct {
	cluster *cluster
}

func newGuard(c *cluster) (*guard, error) { return &guard{c}, nil }

func (g *guard) release() error {
	var err error
	if _, statErr := os.Stat(g.cluster.data() + "/postmaster.pid"); statErr == nil {
		err = g.cluster.control(context.Background(), "stop", "--mode", string(Immediate))
	}
	return errors.Join(err, os.RemoveAll(g.cluster.folder))
}
