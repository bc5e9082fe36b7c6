package brokertest

import (
	"context"
	"os/exec"
	"path/filepath"
)

// StartNATS starts a nats-server with JetStream. Its error wraps [ErrMissing] if that is not
// installed.
func StartNATS(ctx context.Context) (*Broker, error) { return NATSWith()(ctx) }

// NATSWith is StartNATS with more arguments for the server.
func NATSWith(arguments ...string) func(context.Context) (*Broker, error) {
	return func(ctx context.Context) (*Broker, error) {
		program, err := find("nats-server", "nats-server", "/usr/sbin/nats-server")
		if err != nil {
			return nil, err
		}
		b, err := newBroker()
		if err != nil {
			return nil, err
		}
		b.URL = "nats://" + user + ":" + password + "@" + b.address
		b.command = func() *exec.Cmd {
			return exec.Command(program, append([]string{"--addr", "127.0.0.1", "--port", port(b.address), "--user", user, "--pass", password,
				"--jetstream", "--store_dir", filepath.Join(b.folder, "data")}, arguments...)...)
		}
		return b.startOrClose(ctx)
	}
}
