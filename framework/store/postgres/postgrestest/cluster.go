package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/testserver"
)

// superuser is the only role of a throwaway cluster.
const superuser = "postgres"

// restartTimeout bounds a Restart and its parts, recovery included.
const restartTimeout = 2 * time.Minute

// cluster is a PostgreSQL cluster in a temporary folder.
type cluster struct {
	binaries string // folder of initdb, pg_ctl, postgres
	folder   string // contains data and the log; the guard removes it
	port     int
	account  testserver.Account
	guard    *guard
}

// startCluster creates a cluster and starts its server.
func startCluster(ctx context.Context, binaries string, options Options) (*cluster, error) {
	return launch(ctx, binaries, options.Dir, func(c *cluster) error { return c.initialize(ctx, options) })
}

// basebackup is the program that copies a running cluster.
const basebackup = "pg_basebackup"

// standby copies a running cluster, and starts the copy as a standby of it. A new replication slot
// keeps the write-ahead log that the standby has not received: without it, a standby that lags past a
// checkpoint stops for good.
func (c *cluster) standby(ctx context.Context, slot string) (*cluster, error) {
	return launch(ctx, c.binaries, filepath.Dir(c.folder), func(copied *cluster) error {
		return copied.run(ctx, basebackup, "--pgdata", copied.data(), "--dbname", c.address().String(),
			"--checkpoint", "fast", "--write-recovery-conf", "--create-slot", "--slot", slot, "--no-sync")
	})
}

// launch creates a folder in dir, guards it, fills it, and starts the server. The guard comes first,
// so that nothing is left behind.
func launch(ctx context.Context, binaries, dir string, fill func(*cluster) error) (*cluster, error) {
	account, err := testserver.AccountFor("postgres")
	if err != nil {
		return nil, err
	}
	folder, err := account.MakeFolder(dir, "waybill-postgres-*")
	if err != nil {
		return nil, err
	}
	c := &cluster{binaries: binaries, folder: folder, account: account}
	if c.guard, err = newGuard(c); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := fill(c); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) data() string { return filepath.Join(c.folder, "data") }
func (c *cluster) log() string  { return filepath.Join(c.folder, "log") }

func (c *cluster) address() *url.URL {
	return &url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Host:     testserver.Loopback(c.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
}

func (c *cluster) initialize(ctx context.Context, options Options) error {
	err := c.run(ctx, "initdb", "--pgdata", c.data(), "--username", superuser, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	if err != nil {
		return err
	}
	return c.configure(options)
}

func (c *cluster) configure(options Options) error {
	settings := map[string]string{
		"max_connections": "200",
		"shared_buffers":  "256MB",
		"timezone":        "UTC",
	}
	if !options.Durable {
		settings["fsync"] = "off"
	}
	maps.Copy(settings, options.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	settings["unix_socket_directories"] = "" // the path of a temporary folder may be too long for a socket

	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&lines, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	file, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(lines.String())
	return errors.Join(err, file.Close())
}

// start starts the server. If another process has taken the port, it tries another one.
func (c *cluster) start(ctx context.Context) (err error) {
	for range testserver.StartTries {
		if c.port, err = testserver.FreePort(); err != nil {
			return err
		}
		err = c.control(ctx, "start", c.portOption()...)
		if err == nil || testserver.IsFree(c.port) {
			return err
		}
	}
	return err
}

func (c *cluster) portOption() []string {
	return []string{"--options", "-p " + strconv.Itoa(c.port)}
}

// stop ends the server if it is running, and removes the folder.
func (c *cluster) stop() error { return c.guard.release() }

// control runs pg_ctl and waits until the server has done what was asked. Its error contains the end
// of the server's log.
func (c *cluster) control(ctx context.Context, action string, args ...string) error {
	args = append([]string{action, "--wait", "--pgdata", c.data(), "--log", c.log()}, args...)
	if err := c.run(ctx, "pg_ctl", args...); err != nil {
		return testserver.WithLog(err, c.log())
	}
	return nil
}

// run runs one of the server's programs as the server's user.
func (c *cluster) run(ctx context.Context, name string, args ...string) error {
	command := c.command(ctx, name, args...)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, bytes.TrimSpace(output))
	}
	return nil
}

func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(c.binaries, program(name)), args...)
	command.Dir = c.folder // the server's user may have no access to the caller's folder
	command.Env = serverEnvironment()
	command.SysProcAttr = c.account.Attributes()
	return command
}

// serverEnvironment returns the environment without variables that would change the server, and with
// messages in English.
func serverEnvironment() []string {
	kept := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "LC_")
	})
	return append(kept, "LC_ALL=C")
}
