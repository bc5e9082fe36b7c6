package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// MaxRabbitMQ is the largest message in bytes that a RabbitMQ of this package accepts.
const MaxRabbitMQ = 8 << 20

// StartRabbitMQ starts a RabbitMQ with one node. Its error wraps [ErrMissing] if that is not
// installed.
//
// Erlang nodes find each other through a daemon, epmd. This node has a separate epmd on another
// port, which ends with it. So it connects to no other node of the machine, and needs neither a
// service manager nor the user rabbitmq.
func StartRabbitMQ(ctx context.Context) (*Broker, error) {
	// Debian's program in PATH requires the user root or rabbitmq, and writes to /var.
	program, errServer := find("rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
	epmd, errEpmd := find("erlang-base", "epmd")
	if err := errors.Join(errServer, errEpmd); err != nil {
		return nil, err
	}
	distribution, errDistribution := freeAddress()
	epmdAddress, errEpmd := freeAddress()
	b, err := newBroker()
	if err := errors.Join(errDistribution, errEpmd, err); err != nil {
		return nil, err
	}
	b.URL = fmt.Sprintf("amqp://%s:%s@%s/", user, password, b.address)
	in := func(name string) string { return filepath.Join(b.folder, name) }
	environment := append(os.Environ(),
		"HOME="+b.folder, // for the Erlang cookie
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT="+port(epmdAddress),
		"RABBITMQ_NODENAME=waybill-"+port(b.address)+"@localhost",
		"RABBITMQ_DIST_PORT="+port(distribution),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+in("rabbitmq-env.conf"), // this file does not exist, but replaces the one in /etc
		"RABBITMQ_CONFIG_FILE="+in("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+in("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE="+in("mnesia"),
		"RABBITMQ_LOG_BASE="+in("logs"),
		"RABBITMQ_PID_FILE="+in("pid"),
	)
	b.command = func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Dir, cmd.Env = b.folder, environment
		return cmd
	}
	config := fmt.Sprintf("listeners.tcp.1 = %s\ndefault_user = %s\ndefault_pass = %s\nmax_message_size = %d\n"+
		"log.console = true\nlog.console.level = warning\nlog.file = false\n", b.address, user, password, MaxRabbitMQ)
	if err := os.WriteFile(in("rabbitmq.conf"), []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.helper, err = start(exec.Command(epmd, "-address", "127.0.0.1", "-port", port(epmdAddress)), in("epmd.log"))
	if err == nil {
		err = b.helper.waitUntilListening(ctx, epmdAddress)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b.startOrClose(ctx)
}
