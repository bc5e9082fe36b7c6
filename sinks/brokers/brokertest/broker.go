// Package brokertest runs a broker of the distribution's packages as a process of its own,
// for programs that show or test something with a real one. It listens on a free
// port of the loopback only, keeps its data in a temporary folder, and knows
// nothing of a broker that the machine runs as a service. It asks for a password.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ErrMissing is returned where the broker's program is not installed.
var ErrMissing = errors.New("is not installed")

// patience is how long a start or a stop may take: RabbitMQ needs some 5 s for each
// on a slow machine, and much more on a busy one.
const patience = 90 * time.Second

// What brokers here ask for.
const (
	user     = "waybill"
	password = "hunter22"
)

// Broker is a broker's process and its data. Its methods are for one goroutine.
type Broker struct {
	// URL is where clients find it, also after it was stopped and started again. It holds
	// the user and the password.
	URL string

	address string
	folder  string
	command func() *exec.Cmd
	server  *process
	helper  *process // that the server needs; nil if it needs none
}

// newBroker finds a free port and makes the folder.
func newBroker() (*Broker, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "broker")
	if err != nil {
		return nil, err
	}
	return &Broker{address: address, folder: folder}, nil
}

// Start starts the broker, with the data that it had before. It returns once the
// broker listens.
func (b *Broker) Start(ctx context.Context) error {
	server, err := start(b.command(), filepath.Join(b.folder, "log"))
	if err != nil {
		return err
	}
	b.server = server
	if err := server.waitUntilListening(ctx, b.address); err != nil {
		return errors.Join(err, server.kill())
	}
	return nil
}

// Stop stops the broker as a service is stopped.
func (b *Broker) Stop() error { return b.server.stop() }

// Kill ends the broker without a warning, as a crash does.
func (b *Broker) Kill() error { return b.server.kill() }

// Freeze has the broker do nothing at all, while its connections stay open, until Thaw.
func (b *Broker) Freeze() error { return b.server.signal(syscall.SIGSTOP) }

// Thaw has the broker go on.
func (b *Broker) Thaw() error { return b.server.signal(syscall.SIGCONT) }

// Close stops the broker if it runs, and removes its data.
func (b *Broker) Close() error {
	var failed []error
	for _, p := range []*process{b.server, b.helper} {
		if p != nil {
			failed = append(failed, p.stop())
		}
	}
	return errors.Join(append(failed, os.RemoveAll(b.folder))...)
}

// startOrClose is the last step of a constructor.
func (b *Broker) startOrClose(ctx context.Context) (*Broker, error) {
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// find returns the program's path: the first that there is.
func find(debianPackage string, programs ...string) (string, error) {
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w: apt-get install %[1]s", debianPackage, ErrMissing)
}

// freeAddress names a port of the loopback that was free a moment ago. It is below those
// that systems give to connections and to listeners that ask for any: one of these would
// have it before the broker.
func freeAddress() (string, error) {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))
		listener, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return address, listener.Close()
	}
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address) // it came from a listener
	return port
}
