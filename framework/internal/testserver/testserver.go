package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The ports are below those that systems assign to connections and listeners (32768 and up on Linux, 49152
// elsewhere), so that none takes one before it is used, or while a server restarts.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 100
)

// startTries is how often to try again if another process took the free port first.
const startTries = 3

// DropTimeout bounds the removal of a database, for which the caller gives no context.
const DropTimeout = 30 * time.Second

// FreePort returns a port of the loopback interface that is free at the moment.
func FreePort() (int, error) {
	for range portTries {
		if port := firstPort + mathrand.IntN(lastPort-firstPort); isFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d in %d tries", firstPort, lastPort, portTries)
}

// isFree reports whether no process listens on a port of the loopback interface.
func isFree(port int) bool {
	listener, err := net.Listen("tcp", Loopback(port))
	return err == nil && listener.Close() == nil
}

// Loopback returns the address of a port of the loopback interface.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// DatabaseName returns a name that no other database has. Clients turn unquoted names into lower case.
func DatabaseName() string { return "waybill_" + strings.ToLower(rand.Text()) }

// Cache returns a folder of the user's cache. For root it returns one that the unprivileged user who runs
// the server can read.
func Cache(name string) (string, error) {
	base := "/var/cache"
	if os.Geteuid() != 0 {
		var err error
		if base, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	folder := filepath.Join(base, name)
	return folder, os.MkdirAll(folder, 0o755)
}

// Fill makes a folder of a cache. fill fills another folder beside it and returns what is renamed to
// final, so that other processes never see an incomplete one.
func Fill(final string, fill func(work string) (filled string, err error)) error {
	work, err := os.MkdirTemp(filepath.Dir(final), "fetch-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	filled, err := fill(work)
	if err != nil {
		return err
	}
	if err := os.Rename(filled, final); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// Shared is the server of all tests of a process, which the first of them starts. It keeps the error of a
// failed start, since another start would fail too.
type Shared[S interface{ Stop() error }] struct {
	Start func(ctx context.Context) (S, error)

	mu      sync.Mutex
	server  S
	running bool
	err     error
}

// startTimeout bounds the start of the shared server, including fetching binaries.
const startTimeout = 3 * time.Minute

// Get returns the server, and starts it if no test has.
func (s *Shared[S]) Get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running && s.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.server, s.err = s.Start(ctx)
		s.running = s.err == nil
	}
	return s.server, s.err
}

// Stop stops the server if a test has started it.
func (s *Shared[S]) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	s.running = false
	if err := s.server.Stop(); err != nil {
		return fmt.Errorf("stop the shared server: %w", err)
	}
	return nil
}

// Main runs a package's tests, stops the server and ends the process.
func (s *Shared[S]) Main(m *testing.M) {
	code := m.Run()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
