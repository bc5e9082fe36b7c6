// Package walkthrough follows the guides of the documentation as a newcomer would: in an empty
// folder, block by block, against a real PostgreSQL. It is a separate module, since some guides
// use pgx and River.
//
// A guide consists of its fenced blocks, in order. A comment above a block says what to do with it:
//
//	<!-- file: NAME -->       write it to that file
//	<!-- terminal: NAME -->   run it in its own terminal, until the guide ends
//	<!-- prints: NAME -->     wait until that terminal shows these lines
//
// Without a comment, a block of sh is run, and a block of text after it is its output, where … stands
// for anything. All other blocks are for the reader only.
package walkthrough

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// patience is how long a command may take on a machine that is busy with other tests.
const patience = 4 * time.Minute

// block is a fenced block of a page, with the comment above it.
type block struct{ does, name, language, text string }

var fenced = regexp.MustCompile("(?ms)^(?:<!-- (file|terminal|prints): (\\S+) -->\n)?```(\\w*)\n(.*?)^```$")

func blocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	require.NoError(t, err)
	var found []block
	for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
		found = append(found, block{m[1], m[2], m[3], m[4]})
	}
	require.NotEmpty(t, found)
	return found
}

// shell is a bash that keeps its folder and variables from block to block.
type shell struct {
	t       *testing.T
	home    string // has what the guide must not see, such as outputs of terminals
	in      io.Writer
	out     *bufio.Reader
	replace *strings.Replacer
}

// programs is the folder of the command waybill of this tree.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "walkthrough"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(programs) }()
	build := exec.Command("go", "build", "-o", programs, "./cmd/waybill")
	build.Dir = filepath.Join("..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		panic(string(output))
	}
	defer func() { _ = postgrestest.Stop() }()
	return m.Run()
}

// newShell starts a shell in an empty folder, with the command waybill of this tree in its PATH.
func newShell(t *testing.T, environment ...string) *shell {
	t.Helper()
	home, folder := t.TempDir(), t.TempDir()
	command := exec.Command("bash")
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false", "PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Env = append(command.Env, environment...)
	in, err := command.StdinPipe()
	require.NoError(t, err)
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	s := &shell{t: t, home: home, in: in, out: bufio.NewReader(out), replace: ports(t)}
	s.run("set -m") // a process group for each terminal, so that its processes end with it
	t.Cleanup(func() {
		_, err := io.WriteString(in, "for job in $(jobs -p); do kill -TERM -- -$job; done; wait; exit 0\n")
		require.NoError(t, err)
		require.NoError(t, command.Wait())
	})
	return s
}

// ports replaces the ports of the guides with free ones.
func ports(t *testing.T) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8090"} {
		listener := listen()
		defer func() { _ = listener.Close() }()
		free := listener.Addr().String()
		pairs = append(pairs, address, free, "PORT="+portOf(address), "PORT="+portOf(free))
	}
	return strings.NewReplacer(pairs...)
}

// portOf returns the port of an address, which a guide sets with PORT.
func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// listen listens at a free port below those that systems assign to connections and listeners, so that none takes
// it before a guide uses it.
func listen() net.Listener {
	for {
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			return listener
		}
	}
}

// run runs commands and returns their standard output.
func (s *shell) run(commands string) string {
	s.t.Helper()
	_, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null 2>%s; printf '\\n\\036%%s\\n' $?\n", commands, s.path("errors"))
	require.NoError(s.t, err)
	var out strings.Builder
	done := make(chan error, 1)
	var status string
	go func() {
		for {
			line, err := s.out.ReadString('\n')
			if code, ended := strings.CutPrefix(line, "\x1e"); ended || err != nil {
				status = strings.TrimSpace(code)
				done <- err
				return
			}
			out.WriteString(line)
		}
	}()
	select {
	case err = <-done:
		require.NoError(s.t, err)
	case <-time.After(patience):
		require.Fail(s.t, "takes too long", commands)
	}
	errors, err := os.ReadFile(s.path("errors"))
	require.NoError(s.t, err)
	require.Equal(s.t, "0", status, "%s\n%s%s", commands, out.String(), errors)
	return out.String()
}

func (s *shell) path(name string) string { return filepath.Join(s.home, name) }

// follow does what a page describes.
func (s *shell) follow(page string) {
	s.t.Helper()
	var printed string
	for _, b := range blocks(s.t, page) {
		b.text = s.replace.Replace(b.text)
		switch {
		case b.does == "file":
			require.NoError(s.t, os.WriteFile(s.path("file"), []byte(b.text), 0o600))
			s.run(fmt.Sprintf("mkdir -p \"$(dirname %s)\" && cp %s %s", b.name, s.path("file"), b.name))
		case b.does == "terminal":
			require.NoError(s.t, os.WriteFile(s.path(b.name), nil, 0o600))
			s.run(fmt.Sprintf("(\n%s) >%s 2>&1 &", b.text, s.path(b.name)))
		case b.does == "prints":
			s.await(b.name, b.text)
		case b.language == "sh":
			printed = s.run(s.commands(b.text))
		case b.language == "text":
			require.Regexp(s.t, "(?s)^"+strings.TrimSpace(pattern(b.text))+"$", strings.TrimSpace(printed))
		}
	}
}

// commands adapts a block's commands to a module that no registry has: the guide's module gets the
// requirements of this one, and the installed command is the one in the PATH.
func (s *shell) commands(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " # ")
		switch {
		case line == "go -C ../waybill install ./cmd/waybill":
			lines = append(lines, "command -v waybill >/dev/null")
		case strings.HasPrefix(line, "go mod edit -replace github.com/waybill-go/waybill"): // go mod init does that
		case strings.HasPrefix(line, "go mod init "):
			here, err := filepath.Abs(".")
			require.NoError(s.t, err)
			root := filepath.Dir(filepath.Dir(here))
			lines = append(lines, line, fmt.Sprintf("sed -E '/^module/d; /^go /d; s|=> \\.\\./\\.\\.(/\\|$)|=> %s\\1|' %s/go.mod >>go.mod", root, here),
				fmt.Sprintf("cat %s/go.sum %s/go.sum >go.sum", root, here))
		default:
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " &&\n")
}

// await waits until a terminal shows the lines.
func (s *shell) await(terminal, text string) {
	s.t.Helper()
	expected := regexp.MustCompile(strings.TrimSuffix(pattern(text), "\n"))
	shows := func() []byte {
		shown, err := os.ReadFile(s.path(terminal))
		require.NoError(s.t, err)
		return shown
	}
	for deadline := time.Now().Add(patience); !expected.Match(shows()); time.Sleep(20 * time.Millisecond) {
		require.True(s.t, time.Now().Before(deadline), "%s does not show\n%s\nbut\n%s", terminal, text, shows())
	}
}

// pattern returns a regular expression for an output that a page shows.
func pattern(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*")
}
