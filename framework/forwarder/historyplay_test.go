package forwarder_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What `make histories` sets.
var (
	// How many histories are played, such as 10000, or for how long, such as 60s.
	histories = os.Getenv("WAYBILL_HISTORIES")
	// The seed of the first one.
	historySeed = os.Getenv("WAYBILL_HISTORIES_SEED")
	// The file of a history to play, instead of random ones.
	historyFile = os.Getenv("WAYBILL_HISTORY")
	// Set in a process that plays the histories whose seeds it reads.
	historyPlayer = os.Getenv("WAYBILL_HISTORIES_PLAYER")
)

const (
	// manySeeds is how many histories exercise everything that there is.
	manySeeds = 1000
	// shrinkTime bounds the search for a shorter history that fails too.
	shrinkTime = time.Minute
	// hangTime is how long a history takes at most in real time, by far, since nothing in it waits for that.
	hangTime = 5 * time.Minute
	// progressTime is the pause between two lines about the progress.
	progressTime = time.Minute
)

// TestRandomHistoriesLoseNothingAndKeepEachKeysOrder plays random histories: see type history for what happens in
// them, and historycheck_test.go for the rules that they keep.
func TestRandomHistoriesLoseNothingAndKeepEachKeysOrder(t *testing.T) {
	switch {
	case historyPlayer != "":
		playSeeds(t, os.Stdin, os.Stdout)
	case historyFile != "":
		text, err := os.ReadFile(historyFile)
		require.NoError(t, err)
		h, err := parseHistory(string(text))
		require.NoError(t, err)
		require.Empty(t, play(t, t.TempDir(), h, os.Stdout).problems)
	default:
		t.Parallel()
		newSeries(t).run()
	}
}

// played is what a process reports about a history.
type played struct {
	Seed     uint64
	Counts   map[string]int
	Problems []string `json:",omitempty"`
	Shrunk   string   `json:",omitempty"` // the text of a shorter history that fails too
	Why      []string `json:",omitempty"` // its problems
}

// playedMark begins a line with a report.
const playedMark = "played: "

// playSeeds plays the histories whose seeds it reads, and reports about each in a line.
func playSeeds(t *testing.T, seeds io.Reader, reports io.Writer) {
	folder := t.TempDir()
	for lines := bufio.NewScanner(seeds); lines.Scan(); {
		seed, err := strconv.ParseUint(lines.Text(), 10, 64)
		require.NoError(t, err)
		h := generate(seed)
		result := play(t, folder, h, nil)
		p := played{Seed: seed, Counts: result.counts, Problems: result.problems}
		if len(p.Problems) > 0 {
			p.Why = p.Problems
			p.Shrunk = shrink(h, time.Now().Add(shrinkTime), func(h history) bool {
				for range 3 { // the order of what happens at one time is not always the same
					if problems := play(t, folder, h, nil).problems; isSameKind(problems, p.Problems) {
						p.Why = problems
						return true
					}
				}
				return false
			}).String()
		}
		line, err := json.Marshal(p)
		require.NoError(t, err)
		_, err = fmt.Fprintf(reports, "%s%s\n", playedMark, line)
		require.NoError(t, err)
	}
}

// isSameKind reports whether two runs have a problem of one kind.
func isSameKind(problems, others []string) bool {
	return slices.ContainsFunc(problems, func(p string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return kindOf(p) == kindOf(other) })
	})
}

var ofOne = regexp.MustCompile(`\(.*?\)|\S*[^a-z' ]\S*|\b(` + strings.Join(sinkKinds, "|") + `)\b`)

// kindOf returns a problem without what it is about.
func kindOf(problem string) string {
	if _, after, ok := strings.Cut(problem, ": "); ok && strings.HasPrefix(problem, "while ") {
		problem = after
	}
	return strings.Join(strings.Fields(ofOne.ReplaceAllString(strings.TrimPrefix(problem, "in the end "), "")), " ")
}

// shrink returns a shorter history that fails too: it removes operations, and makes numbers and times smaller.
func shrink(h history, until time.Time, fails func(history) bool) history {
	try := func(shorter history) bool {
		if time.Now().After(until) || !fails(shorter) {
			return false
		}
		h = shorter
		return true
	}
	for removed := true; removed && time.Now().Before(until); {
		removed = false
		for size := max(1, len(h)/2); size > 0; size /= 2 {
			for at := len(h); at > 0; at -= size {
				if from := max(0, at-size); at <= len(h) && try(slices.Delete(slices.Clone(h), from, at)) {
					removed = true
				}
			}
		}
	}
	for i := range h {
		for _, smaller := range []func(o *op){
			func(o *op) { o.N = min(o.N, 1) }, func(o *op) { o.N /= 2 },
			func(o *op) { o.For = min(o.For, time.Second) }, func(o *op) { o.For = (o.For / 2).Round(time.Millisecond) },
		} {
			for {
				shorter := slices.Clone(h)
				if smaller(&shorter[i]); shorter[i] == h[i] || !try(shorter) {
					break
				}
			}
		}
	}
	return h
}

// series is a run of many histories, in as many processes as there are processors: a history is then played by one
// thread, and one that crashes or hangs does not take the others with it.
type series struct {
	t     *testing.T
	began time.Time
	limit uint64
	until time.Time

	mu     sync.Mutex
	first  uint64
	begun  uint64 // histories
	counts map[string]int
	failed int
}

func newSeries(t *testing.T) *series {
	s := &series{t: t, began: time.Now(), limit: 40, counts: make(map[string]int)}
	if testing.Short() {
		s.limit = 8
	}
	s.until = s.began.Add(24 * time.Hour)
	if lasts, err := time.ParseDuration(histories); err == nil {
		s.limit, s.until = 1<<62, s.began.Add(lasts)
	} else if histories != "" {
		s.limit, err = strconv.ParseUint(histories, 10, 64)
		require.NoError(t, err, "WAYBILL_HISTORIES is a number or a duration")
	}
	switch {
	case historySeed != "":
		var err error
		s.first, err = strconv.ParseUint(historySeed, 10, 64)
		require.NoError(t, err, "WAYBILL_HISTORIES_SEED is a number")
	case histories != "":
		s.first = uint64(time.Now().Unix()) % 1_000_000 * 1_000_000
	}
	return s
}

// next returns the seed of the next history.
func (s *series) next() (seed uint64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun >= s.limit || time.Now().After(s.until) {
		return 0, false
	}
	s.begun++
	return s.first + s.begun - 1, true
}

func (s *series) run() {
	s.t.Logf("the first seed is %d", s.first)
	ended := make(chan struct{})
	var players sync.WaitGroup
	for range min(runtime.NumCPU(), int(s.limit)) {
		players.Go(func() {
			for s.player() { // until there are no more seeds
			}
		})
	}
	go func() {
		defer close(ended)
		players.Wait()
	}()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(progressTime):
		}
		s.progress()
	}
	s.judge()
}

func (s *series) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasted := time.Since(s.began)
	s.t.Logf("%d histories in %s, %.0f an hour; %d failed", s.begun, lasted.Round(time.Second), float64(s.begun)/lasted.Hours(), s.failed)
}

// judge says what was exercised, and fails if something never was.
func (s *series) judge() {
	var never []string
	for _, what := range exercises() {
		if s.counts[what] == 0 {
			never = append(never, what)
		}
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		all = append(all, fmt.Sprint(what, " ", s.counts[what]))
	}
	s.t.Logf("exercised: %s", strings.Join(all, ", "))
	if len(never) > 0 && s.begun >= manySeeds {
		s.t.Errorf("never exercised: %s", strings.Join(never, ", "))
	}
}

// player starts a process that plays histories. It reports whether there may be more to play.
func (s *series) player() (more bool) {
	seed, more := s.next()
	if !more {
		return false
	}
	program, err := os.Executable()
	if err != nil {
		s.t.Error(err)
		return false
	}
	var complaints lines
	p := exec.CommandContext(s.t.Context(), program, "-test.run", "^"+s.t.Name()+"$", "-test.timeout", "0")
	p.Env = append(os.Environ(), "WAYBILL_HISTORIES_PLAYER=1", "GOMAXPROCS=1", "WAYBILL_HISTORY=")
	p.Stderr = &complaints
	in, errIn := p.StdinPipe()
	out, errOut := p.StdoutPipe()
	if err := cmp.Or(errIn, errOut, p.Start()); err != nil {
		s.t.Error(err)
		return false
	}
	answers := bufio.NewReader(out)
	for ; more; seed, more = s.next() {
		hangs := time.AfterFunc(hangTime, func() { _ = p.Process.Signal(syscall.SIGQUIT) }) // it says what hangs
		_, err := fmt.Fprintln(in, seed)
		answer := ""
		for err == nil && !strings.HasPrefix(answer, playedMark) {
			complaints.keep(answer)
			answer, err = answers.ReadString('\n')
		}
		hangs.Stop()
		if err != nil { // it crashed, or was killed
			s.crashed(seed, cmp.Or(p.Wait(), err), &complaints)
			return true
		}
		s.played(strings.TrimPrefix(answer, playedMark))
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, answers)
	if err := p.Wait(); err != nil {
		s.crashed(seed, err, &complaints)
	}
	return false
}

// keep keeps a line.
func (l *lines) keep(line string) { _, _ = l.Write([]byte(line)) }

func (s *series) crashed(seed uint64, err error, complaints *lines) {
	text := strings.Join(complaints.with(""), "")
	s.fails("history %d ended its process: %v\n%s", seed, err, text[:min(len(text), 20000)])
}

func (s *series) fails(format string, args ...any) {
	s.mu.Lock()
	s.failed++
	s.mu.Unlock()
	s.t.Errorf(format, args...)
}

// played takes note of a report.
func (s *series) played(answer string) {
	var p played
	if err := json.Unmarshal([]byte(answer), &p); err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	for what, n := range p.Counts {
		s.counts[what] += n
	}
	s.mu.Unlock()
	if len(p.Problems) == 0 {
		return
	}
	most := func(lines []string) string { return strings.Join(lines[:min(len(lines), 10)], "\n  ") }
	s.fails("history %d fails:\n  %s\nMake it again with make histories SEEDS=1 SEED=%d. This shorter one fails with\n  %s\n"+
		"Put it into a file, and play it with make histories HISTORY=file:\n\n%s", p.Seed, most(p.Problems), p.Seed, most(p.Why), p.Shrunk)
}

func TestProblemsHaveTheSameKindWhateverTheyAreAbout(t *testing.T) {
	t.Parallel()
	lost := `in the end 15-4 (z.1, key "a") is neither delivered to bank nor parked`
	require.True(t, isSameKind([]string{`while stay sink=loose mode=hanging: 7-28iii... (y, key "") is neither delivered to loose nor parked`}, []string{lost}))
	require.False(t, isSameKind([]string{`in the end 15-4 (w, key "") is no one's`, `15-4 (w, key "") is blocked for bank`}, []string{lost}))
}

func TestAHistoryIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		h := generate(seed)
		again, err := parseHistory("# a comment\n\n" + h.String())
		require.NoError(t, err)
		require.Equal(t, h, again)
	}
	_, err := parseHistory("wait for=soon")
	require.Error(t, err)
	_, err = parseHistory("wait until=1s")
	require.ErrorContains(t, err, `there is no "until"`)
}

// Here a history fails if a process is killed after some rows were published.
func TestAFailingHistoryIsShrunkToWhatItNeeds(t *testing.T) {
	t.Parallel()
	fails := func(h history) bool {
		publishes := slices.IndexFunc(h, func(o op) bool { return o.Do == "publish" && o.N >= 3 })
		return publishes >= 0 && slices.ContainsFunc(h[publishes:], func(o op) bool { return o.Do == "kill" && o.Node == 2 })
	}
	tried := 0
	for seed := range uint64(300) {
		h := generate(seed)
		if !fails(h) {
			continue
		}
		tried++
		short := shrink(h, time.Now().Add(time.Hour), fails)
		require.True(t, fails(short))
		require.Len(t, short, 2)
		require.Less(t, short[0].N, 6, "it is halved while it fails")
	}
	require.NotZero(t, tried)
	require.Equal(t, history{{Do: "kill"}, {Do: "wait"}}, shrink(history{{Do: "kill"}, {Do: "wait"}}, time.Now(), func(history) bool { return true }), "the time is over")
}
