package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/sinks"
)

// The tests start their own binary as the program. These environment variables control it.
const (
	childVariable   = "WAYBILL_TEST_CHILD"
	journalVariable = "WAYBILL_TEST_JOURNAL" // file that gets the lines that the child reads
	pidsVariable    = "WAYBILL_TEST_PIDS"    // file that gets the ids of started processes
	environVariable = "WAYBILL_TEST_ENVIRON" // file that gets the child's environment
)

func TestMain(m *testing.M) {
	if traits := os.Getenv(childVariable); traits != "" {
		(&program{traits: strings.Split(traits, ",")}).run()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// act is a payload that determines what the child does with its delivery. It answers ok to any
// other payload.
type act struct {
	Answer json.RawMessage `json:"answer,omitempty"` // the fields of the answer
	Print  string          `json:"print,omitempty"`  // print this line to stdout instead of an answer
	Say    string          `json:"say,omitempty"`    // print this line to stderr and answer
	Huge   int             `json:"huge,omitempty"`   // print this many bytes without a line end
	Exit   int             `json:"exit,omitempty"`   // end with this status
	Last   bool            `json:"last,omitempty"`   // answer and end at once
	Hold   int             `json:"hold,omitempty"`   // hold the answer; answer in reverse order once this many are held, or when stdin ends
	Silent bool            `json:"silent,omitempty"` // do not answer
}

// program is the child. Its traits are the ways in which it misbehaves from its start.
type program struct {
	traits []string
	held   []int64
}

func (p *program) is(trait string) bool { return slices.Contains(p.traits, trait) }

func (p *program) run() {
	note(pidsVariable, fmt.Sprintln(os.Getpid()))
	note(environVariable, strings.Join(os.Environ(), "\n")+"\n")
	if p.is("ignores SIGTERM") {
		signal.Ignore(syscall.SIGTERM)
	}
	terminated := make(chan os.Signal, 1)
	if p.is("ends at SIGTERM") || p.is("survives SIGTERM") {
		signal.Notify(terminated, syscall.SIGTERM)
	}
	if p.is("helper traps SIGTERM") {
		trap := `trap 'echo "helper: SIGTERM" >>"$0"' TERM; echo "helper: ready" >>"$0"; while :; do sleep 0.01; done`
		if err := exec.Command("sh", "-c", trap, os.Getenv(journalVariable)).Start(); err != nil {
			panic(err)
		}
	}
	if p.is("forks") || p.is("forks outside the group") {
		sleeper := exec.Command("sleep", "1000")
		if p.is("forks outside the group") {
			leaveGroup(sleeper)
		}
		sleeper.Stdout, sleeper.Stderr = os.Stdout, os.Stderr // so it holds the pipes of the sink open
		if err := sleeper.Start(); err != nil {
			panic(err)
		}
		note(pidsVariable, fmt.Sprintln(sleeper.Process.Pid))
	}
	switch {
	case p.is("broken"):
		fmt.Fprintln(os.Stderr, "ImportError: no module named shop")
		os.Exit(1)
	case p.is("version 2"):
		fmt.Println(`{"line":"hello","version":2}`)
	case p.is("refuses"):
		fmt.Println(`{"line":"hello","error":"I want version 2"}`)
	case p.is("prints"):
		fmt.Println("Listening ...")
	case p.is("takes collections"):
		fmt.Println(`{"line":"hello","version":1,"collections":true}`)
	case !p.is("no hello"):
		fmt.Println(`{"line":"hello","version":1}`)
	}
	if p.is("never reads") {
		time.Sleep(time.Hour)
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		note(journalVariable, line)
		p.take(line)
	}
	for _, number := range p.held {
		ok(number, "at the end")
	}
	if p.is("ends at SIGTERM") || p.is("survives SIGTERM") {
		note(journalVariable, "program: end of file\n")
		<-terminated
		note(journalVariable, "program: SIGTERM\n")
	}
	if p.is("ignores SIGTERM") || p.is("survives SIGTERM") {
		time.Sleep(time.Hour)
	}
}

func (p *program) take(line string) {
	var d struct {
		Line     string
		Delivery int64
		ID       string
		Base64   bool
		Payload  json.RawMessage
	}
	if err := json.Unmarshal([]byte(line), &d); err != nil {
		panic(err)
	}
	if d.Line != "deliver" && d.Line != "collection" {
		return
	}
	var a act
	if !d.Base64 {
		_ = json.Unmarshal(d.Payload, &a)
	}
	switch {
	case a.Say != "":
		fmt.Fprintln(os.Stderr, a.Say)
	case a.Exit != 0:
		fmt.Fprintln(os.Stderr, "boom")
		os.Exit(a.Exit)
	case a.Print != "":
		fmt.Println(a.Print)
		return
	case a.Huge > 0:
		_, _ = io.WriteString(os.Stdout, strings.Repeat("x", a.Huge))
		return
	case a.Last:
		ok(d.Delivery, "last")
		os.Exit(1)
	case a.Silent:
		return
	case a.Answer != nil:
		fields := strings.TrimPrefix(string(a.Answer), "{")
		fmt.Printf(`{"line":"answer","delivery":%d,%s`+"\n", d.Delivery, fields)
		return
	case a.Hold > 0:
		p.held = append(p.held, d.Delivery)
		if len(p.held) == a.Hold {
			for _, number := range slices.Backward(p.held) {
				ok(number, "held")
			}
			p.held = nil
		}
		return
	}
	ok(d.Delivery, "took "+d.ID)
}

func ok(number int64, receipt string) {
	text, _ := json.Marshal(receipt)
	fmt.Printf(`{"line":"answer","delivery":%d,"outcome":"ok","receipt":%s}`+"\n", number, text)
}

func note(variable, text string) {
	name := os.Getenv(variable)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(text); err != nil {
		panic(err)
	}
	_ = f.Close()
}

// testConfig returns a configuration that runs the child with these traits.
func testConfig(t *testing.T, traits ...string) Config {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	return Config{
		Command: []string{self},
		Env: map[string]string{
			childVariable:   "child," + strings.Join(traits, ","),
			journalVariable: folder + "/journal",
			pidsVariable:    folder + "/pids",
			"GORACE":        "atexit_sleep_ms=0", // otherwise a program with -race takes a second to end
		},
		Grace:        5 * time.Second,
		longestPause: 50 * time.Millisecond,
		drainTime:    time.Minute, // so that a machine that stalls takes no end of a process for a hung pipe
	}
}

// open makes and opens a sink, and closes it when the test ends.
func open(t *testing.T, c Config, in ...sinks.Instance) *Sink {
	t.Helper()
	sink, err := New(append(in, sinks.Instance{Name: "shop"})[0], c)
	require.NoError(t, err)
	require.NoError(t, sink.Open(t.Context()))
	t.Cleanup(func() { closeSink(t, sink) })
	return sink
}

func closeSink(t *testing.T, sink *Sink) {
	t.Helper()
	require.NoError(t, sink.Close(t.Context()))
}

// noted returns the lines of a file that children wrote.
func noted(c Config, variable string) []string {
	text, _ := os.ReadFile(c.Env[variable]) // the file may not exist yet
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// lockedBuffer is a log for concurrent use.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
