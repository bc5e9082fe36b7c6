package brokertest

import (
	"context"
	"os/exec"
)

// StartRedis starts a redis-server that stores each entry on disk before it answers. Its error
// wraps [ErrMissing] if that is not installed.
func StartRedis(ctx context.Context) (*Broker, error) {
	program, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	b, err := newBroker()
	if err != nil {
		return nil, err
	}
	b.URL = "redis://:" + password + "@" + b.address
	b.command = func() *exec.Cmd {
		return exec.Command(program, "--bind", "127.0.0.1", "--port", port(b.address), "--requirepass", password,
			"--dir", b.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	}
	return b.startOrClose(ctx)
}
