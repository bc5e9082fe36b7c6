//go:build unix

// Package tasks checks what people have reached with the documentation: README.md says how.
//
// A check runs what is in a folder against a real PostgreSQL and real receivers. It returns an error
// that says what the folder does not reach.
package tasks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// task is a folder NN-name here.
type task struct {
	folder string
	check  func(*trial) error
	// start is a part of the error of what the user has at the beginning.
	start string
}

var all = []task{
	{"01-publish", publish, "arrived at partner"},
	{"02-once", once, "the stock of kite is 4, not 7"},
	{"03-new-version", newVersion, "o-3 is stored as version 1"},
	{"04-sink-kind", sinkKind, "arrived at the office"},
	{"05-dead-partner", deadPartner, "answer.json"},
	{"06-poisoned", poisoned, "arrived at partner"},
	{"07-replay", replay, "arrived at search"},
	{"08-second-forwarder", secondForwarder, "two forwarders work"},
	{"09-python", python, "arrived at partner"},
	{"10-throughput", throughput, "result.json"},
}

// programs is the folder of the command waybill of this tree, and root that of the repository.
var programs, root string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if root, err = filepath.Abs(filepath.Join("..", "..", "..")); err != nil {
		panic(err)
	}
	if programs, err = os.MkdirTemp("", "tasks"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(programs) }()
	build := exec.Command("go", "build", "-o", programs, "./cmd/waybill")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		panic(string(output))
	}
	defer func() { _ = postgrestest.Stop() }()
	return m.Run()
}

func TestEachSolutionReachesItsTask(t *testing.T) {
	t.Parallel()
	for _, k := range all {
		t.Run(k.folder, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join(k.folder, "start"))))
			overlay(t, filepath.Join(k.folder, "solution"), folder)
			require.NoError(t, try(t, k, folder, 2*time.Minute))
		})
	}
}

func TestTheStartDoesNotReachItsTask(t *testing.T) {
	t.Parallel()
	for _, k := range all {
		t.Run(k.folder, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join(k.folder, "start"))))
			patience := 3 * time.Second
			if strings.Contains(k.start, "stock") {
				patience = 2 * time.Minute // the start gets far, and then has the wrong effect
			}
			require.ErrorContains(t, try(t, k, folder, patience), k.start)
		})
	}
}

// TestTheFolderReachesItsTask checks a copy of the folder WAYBILL_FOLDER for the task whose number is
// WAYBILL_TASK. With WAYBILL_OPEN it is the folder itself, in which a person then works.
func TestTheFolderReachesItsTask(t *testing.T) {
	folder := os.Getenv("WAYBILL_FOLDER")
	if folder == "" {
		t.Skip("WAYBILL_FOLDER is not set")
	}
	for _, k := range all {
		if strings.HasPrefix(k.folder, os.Getenv("WAYBILL_TASK")+"-") {
			if os.Getenv("WAYBILL_OPEN") == "" {
				copied := t.TempDir()
				require.NoError(t, os.CopyFS(copied, os.DirFS(folder)))
				folder = copied
			}
			require.NoError(t, try(t, k, folder, time.Minute))
			return
		}
	}
	t.Fatalf("WAYBILL_TASK=%s: no such task; 01 to %02d are", os.Getenv("WAYBILL_TASK"), len(all))
}

// overlay copies the files of a folder over those of another one.
func overlay(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(from, file.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, file.Name()), text, 0o600))
	}
}

// trial is one check of a folder.
type trial struct {
	testing.TB
	folder      string
	dsn         string
	db          *sql.DB
	environment []string
	patience    time.Duration // for what a right solution reaches at once
}

func try(t *testing.T, k task, folder string, patience time.Duration) error {
	t.Helper()
	dsn := postgrestest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c := &trial{TB: t, folder: folder, dsn: dsn, db: db, patience: patience}
	c.set("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	c.set("DATABASE_URL", dsn)
	c.set("PARTNER_SECRET", secret)
	return k.check(c)
}

// set sets a variable of the programs that are started from now on.
func (c *trial) set(name, value string) {
	c.environment = append(c.environment, name+"="+value)
}

func (c *trial) command(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	if name == "waybill" {
		name = filepath.Join(programs, name)
	}
	command := exec.CommandContext(ctx, name, arguments...)
	// Waybill takes such variables for keys of a configuration, and refuses unknown ones.
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WAYBILL_") })
	command.Dir, command.Env = c.folder, append(inherited, c.environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 10 * time.Second
	return command
}

// do runs a program to its end, and returns what it prints to its standard output.
func (c *trial) do(name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), 3*time.Minute)
	defer cancel()
	var out, errs strings.Builder
	command := c.command(ctx, name, arguments...)
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		line := strings.Join(append([]string{filepath.Base(name)}, arguments...), " ")
		return out.String(), fmt.Errorf("%s: %w: %s%s", line, err, errs.String(), out.String())
	}
	return out.String(), nil
}

// process is a program that runs until it is killed, or until the check ends.
type process struct {
	pid   int
	kill  func()
	ended chan struct{}
}

// start starts a program. What it prints is shown if the check fails.
func (c *trial) start(name string, arguments ...string) (*process, error) {
	log, err := os.CreateTemp(c.TempDir(), "log")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := c.command(ctx, name, arguments...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		cancel()
		return nil, err
	}
	p := &process{pid: command.Process.Pid, ended: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	p.kill = func() {
		cancel()
		<-p.ended
	}
	c.Cleanup(func() {
		p.kill()
		text, _ := os.ReadFile(log.Name())
		c.Logf("%s %s:\n%s", filepath.Base(name), strings.Join(arguments, " "), text)
		_ = log.Close()
	})
	return p, nil
}

// forwarder starts waybill forward with the folder's waybill.yaml.
func (c *trial) forwarder() (*process, error) {
	return c.start("waybill", "forward", "-c", "waybill.yaml")
}

// kept is forwarder, and starts another one whenever one has ended.
func (c *trial) kept() (*process, error) {
	first, err := c.forwarder()
	if err != nil {
		return nil, err
	}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for p := first; err == nil; p, err = c.forwarder() {
			select {
			case <-c.Context().Done():
				return
			case <-p.ended:
			}
			if c.Context().Err() != nil {
				return
			}
		}
	})
	c.Cleanup(keeping.Wait)
	return first, nil
}

// migrate makes the outbox, and tables of the application.
func (c *trial) migrate(tables ...string) error {
	if _, err := c.do("waybill", "migrate", "--database", c.dsn); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := c.db.ExecContext(c.Context(), table); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the program of a folder, with the modules of this tree unless the folder has a go.mod.
func (c *trial) build(folder string) (string, error) {
	into := c.TempDir()
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); errors.Is(err, os.ErrNotExist) {
		copied := c.TempDir()
		if err := errors.Join(os.CopyFS(copied, os.DirFS(folder)), module(copied)); err != nil {
			return "", err
		}
		folder = copied
	}
	build := c.command(c.Context(), "go", "build", "-mod=mod", "-ldflags=-s -w", "-o", filepath.Join(into, "main"), ".")
	build.Dir, build.Env = folder, append(build.Env, "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, output)
	}
	return filepath.Join(into, "main"), nil
}

// module writes a go.mod that takes Waybill from this tree, and its go.sum.
func module(folder string) error {
	text, err := os.ReadFile(filepath.Join("..", "go.mod"))
	sums, err2 := os.ReadFile(filepath.Join("..", "go.sum"))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	rest = strings.ReplaceAll(rest, "=> ../..", "=> "+root)
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example.com/task\n"+rest), 0o600),
		os.WriteFile(filepath.Join(folder, "go.sum"), sums, 0o600))
}

func TestATaskBeginsWithWhatItsFolderHas(t *testing.T) {
	for _, task := range []string{"01", "05"} {
		folder := filepath.Join(t.TempDir(), "task")
		output, err := exec.CommandContext(t.Context(), "./task", "begin", task, folder).CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.FileExists(t, filepath.Join(folder, "task.md"))
		if task == "05" {
			require.FileExists(t, filepath.Join(folder, "waybill.yaml"))
			continue
		}
		expected := t.TempDir()
		require.NoError(t, module(expected))
		for _, name := range []string{"go.mod", "go.sum"} { // as those with which solutions are built
			want, err := os.ReadFile(filepath.Join(expected, name))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(folder, name))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		}
	}
	output, err := exec.CommandContext(t.Context(), "./task", "begin", "99", t.TempDir()).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "there is no task 99")
}

// solve runs the folder's solve.sh. With WAYBILL_OPEN it writes the variables to env.sh instead, and
// waits until a person has made the file done.
func (c *trial) solve() error {
	if os.Getenv("WAYBILL_OPEN") == "" {
		_, err := c.do("bash", "-e", "solve.sh")
		return err
	}
	var text strings.Builder
	for _, variable := range c.environment {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&text, "export %s='%s'\n", name, value)
	}
	if err := os.WriteFile(filepath.Join(c.folder, "env.sh"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(os.Stderr, "open: source %s/env.sh, work there, and then make the file done\n", c.folder)
	c.patience = time.Hour
	err := c.until("the file done is there", func() (bool, error) {
		_, err := os.Stat(filepath.Join(c.folder, "done"))
		return err == nil, nil
	})
	c.patience = time.Minute
	return err
}

// until waits until a condition holds.
func (c *trial) until(what string, holds func() (bool, error)) error {
	for deadline := time.Now().Add(c.patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := holds()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not reached within %v: %s", c.patience, what)
		}
	}
}

// counts waits until a query for a number returns it.
func (c *trial) counts(what string, want int, query string, arguments ...any) error {
	var n int
	err := c.until(what, func() (bool, error) {
		err := c.db.QueryRowContext(c.Context(), query, arguments...).Scan(&n)
		return n == want, err
	})
	if err != nil {
		return fmt.Errorf("%w: %d, not %d", err, n, want)
	}
	return nil
}

// order publishes the n-th order of a key, which occurred at a time, with the id KEY-n.
func (c *trial) order(key string, n int, at time.Time) error {
	_, err := c.db.ExecContext(c.Context(),
		`INSERT INTO outbox (id, type, key, payload, occurred_on) VALUES ($1, 'order.placed', $2, $3, $4)`,
		fmt.Sprintf("%s-%d", key, n), key, fmt.Sprintf(`{"order": %q, "product": "kite", "n": %d}`, key, n), at)
	return err
}

// orders publishes the orders from first to last of three keys.
func (c *trial) orders(first, last int) error {
	for n := first; n <= last; n++ {
		for _, key := range []string{"a", "b", "c"} {
			if err := c.order(key, n, time.Now()); err != nil {
				return err
			}
		}
	}
	return nil
}
