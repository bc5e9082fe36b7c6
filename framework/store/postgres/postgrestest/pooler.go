package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// StartPooler starts a PgBouncer in front of the server of a URL, which pools transactions over the
// given number of connections, and returns the URL for connecting through it. It ends with the
// test. Without PgBouncer it returns ErrNoProgram.
func StartPooler(t testing.TB, dsn string, connections int) (string, error) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	server, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	user, err := testserver.AccountFor("postgres") // PgBouncer refuses to run as root
	if err != nil {
		return "", err
	}
	folder, err := user.MakeFolder("", "waybill-postgres-*")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	port, err := testserver.FreePort()
	if err != nil {
		return "", err
	}
	login := "user=" + server.User.Username()
	if password, ok := server.User.Password(); ok {
		login += " password='" + password + "'"
	}
	settings := filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
`, server.Hostname(), server.Port(), login, port, connections)
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil { // PgBouncer's user reads it
		return "", err
	}
	ctx, stop := context.WithCancel(context.Background())
	pooler := exec.CommandContext(ctx, program, "-q", settings)
	pooler.SysProcAttr = user.Attributes()
	pooler.Dir = folder
	if err := pooler.Start(); err != nil {
		stop()
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = pooler.Wait() // its error is that it was killed
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	through := *server
	through.Host = testserver.Loopback(port)
	return through.String(), awaitPort(through.Host, ended)
}

// awaitPort waits until a process listens at an address, or until ended is closed.
func awaitPort(address string, ended <-chan struct{}) error {
	late := time.After(time.Minute)
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return errors.New("PgBouncer ended at once; run it by hand to see why")
		case <-late:
			return errors.New("PgBouncer does not listen")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
