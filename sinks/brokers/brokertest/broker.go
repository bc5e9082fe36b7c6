// Package brokertest runs a broker from the distribution's packages in a separate process, for
// tests and demonstrations with a real broker. It listens on a free port of the loopback interface
// only, requires a password, and keeps its data in a temporary folder. It is independent of a broker
// that runs as a service on the machine.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrMissing means that the broker is not installed.
var ErrMissing = errors.New("is not installed")

// timeout limits starting and stopping a broker. RabbitMQ takes about 5 s for each on a slow
// machine, and much longer on a busy one.
const timeout = 90 * time.Second

// Credentials that the brokers require.
const (
	user     = "waybill"
	password = "hunter22"
)

// Broker is a broker's process and its data. Only one goroutine at a time may use it.
type Broker struct {
	// URL is the broker's address for clients, with user and password. It stays the same
	// after a restart.
	URL string

	address string
	folder  string
	command func() *exec.Cmd
	server  *process
	helper  *process // another process that the server needs; nil if it needs none
}

// newBroker finds a free port and creates the folder.
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

// Start starts the broker with the data that it had before. It returns when the broker listens.
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

// Stop stops the broker with SIGTERM.
func (b *Broker) Stop() error { return b.server.stop() }

// Kill kills the broker, like a crash. A process that the server has started may take longer to end than the server, and
// would still listen when it starts again.
func (b *Broker) Kill() error {
	if err := b.server.kill(); err != nil {
		return err
	}
	for begun := time.Now(); accepts(context.Background(), b.address); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > timeout {
			return fmt.Errorf("%s still listens although it was killed", b.server.name())
		}
	}
	return nil
}

// LastLines returns what the broker has printed last.
func (b *Broker) LastLines() string { return b.server.lastLines() }

// Freeze suspends the broker until Thaw. Its connections stay open.
func (b *Broker) Freeze() error { return b.server.signal(syscall.SIGSTOP) }

// Thaw resumes the broker after Freeze.
func (b *Broker) Thaw() error { return b.server.signal(syscall.SIGCONT) }

// Close stops the broker if it is running, and removes its data.
func (b *Broker) Close() error {
	var failed []error
	for _, p := range []*process{b.server, b.helper} {
		if p != nil {
			failed = append(failed, p.stop())
		}
	}
	return errors.Join(append(failed, os.RemoveAll(b.folder))...)
}

// startOrClose starts the broker, and closes it if that fails.
func (b *Broker) startOrClose(ctx context.Context) (*Broker, error) {
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// find returns the path of the first program that exists.
func find(debianPackage string, programs ...string) (string, error) {
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w: apt-get install %[1]s", debianPackage, ErrMissing)
}

// The ports are below those that systems assign to connections, and other tests have others. They are cut into blocks.
const (
	firstPort = 15000
	lastPort  = 19000
	blockSize = 250
)

// block claims a block for this process, so that no other one takes a port while a broker restarts: until the process
// ends, it listens at the block's first port.
var block = sync.OnceValues(func() (net.Listener, error) {
	for n := firstPort; n < lastPort; n += blockSize {
		claim, err := listen(n)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return claim, err
		}
	}
	return nil, fmt.Errorf("too many processes have brokers: no free port between %d and %d, in steps of %d", firstPort, lastPort, blockSize)
})

// drawn is how many ports of its block this process has tried.
var drawn atomic.Uint32

// freeAddress returns an address with a free port of the loopback interface, a different one each time.
func freeAddress() (string, error) {
	claim, err := block()
	if err != nil {
		return "", err
	}
	first := claim.Addr().(*net.TCPAddr).Port + 1
	for range blockSize {
		listener, err := listen(first + int(drawn.Add(1)%(blockSize-1)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return listener.Addr().String(), listener.Close()
	}
	return "", fmt.Errorf("none of the %d ports after %s is free", blockSize-1, claim.Addr())
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address) // never fails: it comes from freeAddress
	return port
}
