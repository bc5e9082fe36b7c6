package postgrestest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// superuser is the only role of a throwaway cluster.
const superuser = "postgres"

// restartTimeout bounds a Restart and its parts, recovery included.
const restartTimeout = 2 * time.Minute

// cluster is a PostgreSQL cluster in a temporary folder.
type cluster struct {
	*testserver.Process
	binaries string // folder of initdb and postgres
	through  []string
}

// startCluster creates a cluster and starts its server.
func startCluster(ctx context.Context, binaries string, options Options) (*cluster, error) {
	return launch(ctx, &cluster{binaries: binaries, through: options.Through}, options.Dir, func(ctx context.Context, c *cluster) error {
		err := testserver.Run(c.program(ctx, "initdb", "--pgdata", c.data(), "--username", superuser, "--auth", "trust",
			"--encoding", "UTF8", "--locale", "C", "--no-sync"))
		if err != nil {
			return err
		}
		return c.configure(options)
	})
}

// basebackup is the program that copies a running cluster.
const basebackup = "pg_basebackup"

// standby copies a running cluster, and starts the copy as a standby of it. A new replication slot
// keeps the write-ahead log that the standby has not received: without it, a standby that lags past a
// checkpoint stops for good.
func (c *cluster) standby(ctx context.Context, slot string) (*cluster, error) {
	return launch(ctx, &cluster{binaries: c.binaries, through: c.through}, filepath.Dir(c.Folder), func(ctx context.Context, copied *cluster) error {
		return testserver.Run(copied.program(ctx, basebackup, "--pgdata", copied.data(), "--dbname", address(c.Port).String(),
			"--checkpoint", "fast", "--write-recovery-conf", "--create-slot", "--slot", slot, "--no-sync"))
	})
}

// launch fills a folder in dir, and starts the server.
func launch(ctx context.Context, c *cluster, dir string, fill func(context.Context, *cluster) error) (*cluster, error) {
	_, err := testserver.Launch(ctx, testserver.Spec{
		Name: "postgres",
		Dir:  dir,
		Command: func(folder string) []string {
			return append(slices.Clone(c.through), filepath.Join(c.binaries, "postgres"), "-D", filepath.Join(folder, "data"))
		},
		Signal: signals[Immediate],
		Fill: func(ctx context.Context, p *testserver.Process) error {
			c.Process = p
			return fill(ctx, c)
		},
		Ping: func(ctx context.Context, port int) error {
			return with(address(port), func(db *sql.DB) error { return db.PingContext(ctx) })
		},
	})
	return c, err
}

func (c *cluster) data() string { return c.Path("data") }

// program returns a command that runs one of the server's programs.
func (c *cluster) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	return c.Command(ctx, filepath.Join(c.binaries, name), args...)
}

func address(port int) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User(superuser), Host: testserver.Loopback(port), Path: "/postgres", RawQuery: "sslmode=disable"}
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
