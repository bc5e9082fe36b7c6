// Guard compares the main figures of this tree with those of an earlier revision, in turns on one
// PostgreSQL. It fails if a figure is worse.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// options are the values of the flags.
type options struct {
	root      string  // folder of the tree
	against   string  // revision; "" is the latest tag, or the parent of HEAD if there is no tag
	pairs     int     // pairs of runs; as many again if a figure seems worse
	tolerance float64 // as a share: 0.1 is 10 percent
	database  string  // "" starts a server
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "folder of the tree that is measured")
	flag.StringVar(&o.against, "against", "", "revision to compare with (default: the latest tag, or the parent of HEAD if there is no tag)")
	flag.IntVar(&o.pairs, "pairs", 7, "pairs of runs; figures that seem worse get as many again")
	percent := flag.Float64("tolerance", 10, "percent by which a figure may be worse")
	flag.StringVar(&o.database, "database", "", "URL of a PostgreSQL (default: a server is started)")
	flag.Parse()
	o.tolerance = *percent / 100

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.pairs < 1 || !(o.tolerance >= 0 && o.tolerance < 1) || flag.NArg() > 0 {
		return errors.New("use at least one pair, and a tolerance from 0 to less than 100")
	}
	folder, err := os.MkdirTemp("", "waybill-guard-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	programs, err := buildBoth(ctx, o, folder, out)
	if err != nil {
		return err
	}
	if o.database == "" {
		server, err := postgrestest.Start(ctx, postgrestest.Options{Private: true, Durable: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		o.database = server.DSN()
	}
	g := &guard{options: o, programs: programs, measurements: measurements(), out: out}
	return g.run(ctx)
}

// programs are the paths of the two programs.
type programs struct{ before, now string }

func buildBoth(ctx context.Context, o options, folder string, out io.Writer) (p programs, err error) {
	revision, err := revisionOf(ctx, o)
	if err != nil {
		return p, err
	}
	p = programs{before: filepath.Join(folder, "before"), now: filepath.Join(folder, "now")}
	tree := filepath.Join(folder, "tree")
	if _, err := git(ctx, o.root, "worktree", "add", "--detach", tree, revision); err != nil {
		return p, err
	}
	defer func() {
		// Remove it after a signal too, or git keeps the folder in its list.
		_, removed := git(context.WithoutCancel(ctx), o.root, "worktree", "remove", "--force", tree)
		err = errors.Join(err, removed)
	}()
	named, err := git(ctx, tree, "log", "-1", "--format=%h %s")
	if err != nil {
		return p, err
	}
	fmt.Fprintf(out, "This tree against %s\n", named)
	return p, errors.Join(build(ctx, tree, p.before), build(ctx, o.root, p.now))
}

// revisionOf returns the commit of the revision to compare with.
func revisionOf(ctx context.Context, o options) (string, error) {
	revision := o.against
	if revision == "" {
		revision = "HEAD^"
		if tag, err := git(ctx, o.root, "describe", "--tags", "--abbrev=0"); err == nil {
			revision = tag
		}
	}
	return git(ctx, o.root, "rev-parse", "--verify", "--end-of-options", revision+"^{commit}")
}

// build builds the program of a tree.
func build(ctx context.Context, tree, to string) error {
	_, err := output(ctx, tree, "go", "build", "-o", to, "./cmd/waybill")
	return err
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	return output(ctx, folder, "git", args...)
}

// output runs a command and returns its standard output. When ctx is done, it sends SIGTERM.
func output(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var errs strings.Builder
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return "", errors.Join(ctx.Err(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, errs.String()))
	}
	return strings.TrimSpace(string(text)), nil
}
