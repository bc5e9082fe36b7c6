package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

const soon = 2 * time.Minute

func delivery(t *testing.T, what any) *notification.Delivery {
	t.Helper()
	d := sinktest.NewDelivery(1)
	payload, err := json.Marshal(what)
	require.NoError(t, err)
	d.Payload = payload
	return d
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// requireWorks waits until a delivery succeeds.
func requireWorks(t *testing.T, sink *Sink) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := sink.Deliver(t.Context(), delivery(t, "plain"))
		return err == nil
	}, soon, 5*time.Millisecond)
}

// TestConformance is not parallel, because the suite looks for leaked goroutines.
func TestConformance(t *testing.T) {
	var c Config
	make := func(t *testing.T, traits ...string) sinks.Sink {
		c = testConfig(t, traits...)
		sink, err := New(sinks.Instance{Name: "shop"}, c)
		require.NoError(t, err)
		return sink
	}
	sinktest.Run(t, sinktest.Subject{
		New:       func(t *testing.T) sinks.Sink { return make(t, "takes collections") },
		Received:  func(t *testing.T) []notification.Envelope { return received(t, c) },
		Collected: func(t *testing.T) []sinktest.Collected { return collected(t, c) },
		Broken: map[sinks.Class]func(t *testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return make(t, "broken") },
		},
		Stuck: func(t *testing.T) sinks.Sink {
			c := testConfig(t, "takes collections", "never reads")
			c.Grace = 10 * time.Millisecond
			sink, err := New(sinks.Instance{}, c)
			require.NoError(t, err)
			return sink
		},
		Receipts: true,
	})
}

// readItem is a notification in a line, as a program reads it.
type readItem struct {
	ID, Type, Key string
	Version       int
	OccurredOn    time.Time `json:"occurred_on"`
	Metadata      notification.Metadata
	Payload       json.RawMessage
	Base64        bool
}

func (l readItem) envelope(t *testing.T) notification.Envelope {
	payload := []byte(l.Payload)
	if l.Base64 {
		require.NoError(t, json.Unmarshal(l.Payload, &payload))
	}
	return notification.Envelope{
		ID: l.ID, Type: l.Type, Key: l.Key, Version: l.Version, OccurredOn: l.OccurredOn, Metadata: l.Metadata, Payload: payload,
	}
}

func received(t *testing.T, c Config) (envelopes []notification.Envelope) {
	t.Helper()
	for _, line := range noted(c, journalVariable) {
		var l struct {
			Line string
			readItem
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Line == "deliver" {
			envelopes = append(envelopes, l.envelope(t))
		}
	}
	return envelopes
}

func collected(t *testing.T, c Config) (collections []sinktest.Collected) {
	t.Helper()
	for _, line := range noted(c, journalVariable) {
		var l struct {
			Line, ID string
			Items    []readItem
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Line != "collection" {
			continue
		}
		_, raw, _ := strings.Cut(line, `"id":`) // number and attempt stand before it
		one := sinktest.Collected{ID: l.ID, Raw: []byte(raw)}
		for _, item := range l.Items {
			one.Members = append(one.Members, item.envelope(t))
		}
		collections = append(collections, one)
	}
	return collections
}

func TestAProgramMustSayThatItTakesCollections(t *testing.T) {
	t.Parallel()
	c := &sinks.Collection{ID: "c", Group: "g", Attempt: 1, Members: []*notification.Delivery{delivery(t, "plain")}}
	sink := open(t, testConfig(t))
	_, err := sink.DeliverCollection(t.Context(), c)
	require.ErrorIs(t, err, ErrNoCollections)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	requireWorks(t, sink)

	config := testConfig(t, "takes collections")
	config.MaxLineBytes = minMaxLineBytes
	sink = open(t, config)
	receipt, err := sink.DeliverCollection(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("took c"), receipt)
	for range 10 {
		c.Members = append(c.Members, delivery(t, "plain"))
	}
	_, err = sink.DeliverCollection(t.Context(), c)
	require.ErrorIs(t, err, ErrTooLong)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
}

func TestAnswersComeInAnyOrder(t *testing.T) {
	t.Parallel()
	sink := open(t, testConfig(t))
	const many = 50 // the child answers only when it has them all
	var group sync.WaitGroup
	for range many {
		d := delivery(t, act{Hold: many})
		group.Go(func() {
			receipt, err := sink.Deliver(t.Context(), d)
			if err != nil || receipt != "held" {
				t.Errorf("%q, %v", receipt, err)
			}
		})
	}
	group.Wait()
}

func TestAnAnswerGoesToItsDelivery(t *testing.T) {
	t.Parallel()
	sink := open(t, testConfig(t))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 50 {
				d := sinktest.NewDelivery(1)
				receipt, err := sink.Deliver(t.Context(), d)
				if want := notification.Receipt("took " + d.ID); err != nil || receipt != want {
					t.Errorf("%q, %v, want %q", receipt, err, want)
				}
			}
		})
	}
	group.Wait()
}

func TestAnswersDetermineTheClassOfAnError(t *testing.T) {
	t.Parallel()
	sink := open(t, testConfig(t))
	for name, c := range map[string]struct {
		answer string
		class  sinks.Class
		says   string
	}{
		"transient":          {`{"outcome":"transient","error":"try later"}`, sinks.ClassTransient, "try later"},
		"unavailable":        {`{"outcome":"unavailable","error":"shop is shut"}`, sinks.ClassUnavailable, "shop is shut"},
		"permanent":          {`{"outcome":"permanent","error":"no such order"}`, sinks.ClassPermanent, "no such order"},
		"invalid":            {`{"outcome":"invalid","error":"no address"}`, sinks.ClassInvalid, "no address"},
		"unknown":            {`{"outcome":"unknown","error":"no handler for order.lost"}`, sinks.ClassUnknown, "order.lost"},
		"throttled, seconds": {`{"outcome":"throttled","seconds":0.5,"error":"slow"}`, sinks.ClassThrottled, "slow"},
		"throttled, until":   {`{"outcome":"throttled","until":"2999-01-01T00:00:00Z"}`, sinks.ClassThrottled, "no reason"},
		"throttled, past":    {`{"outcome":"throttled","until":"1999-01-01T00:00:00Z"}`, sinks.ClassTransient, "no reason"},
		"throttled, forever": {`{"outcome":"throttled","error":"slow"}`, sinks.ClassTransient, "either until or seconds"},
		"throttled, twice":   {`{"outcome":"throttled","seconds":1,"until":"2999-01-01T00:00:00Z"}`, sinks.ClassTransient, "either until or seconds"},
		"throttled, no time": {`{"outcome":"throttled","until":"soon"}`, sinks.ClassTransient, `until is not a time such as 2026-01-02T15:04:05Z: "soon"`},
		"unknown outcome":    {`{"outcome":"done"}`, sinks.ClassTransient, `permanent, invalid or unknown: "done"`},
		"no outcome":         {`{"receipt":"x"}`, sinks.ClassTransient, `permanent, invalid or unknown: ""`},
		"wrong type":         {`{"outcome":"throttled","seconds":"3"}`, sinks.ClassTransient, "seconds is a string"},
	} {
		_, err := sink.Deliver(t.Context(), delivery(t, act{Answer: []byte(c.answer)}))
		require.ErrorContains(t, err, c.says, name)
		require.Equal(t, c.class, sinktest.Class(err), "%s: %v", name, err)
	}
	_, err := sink.Deliver(t.Context(), delivery(t, act{Answer: []byte(`{"outcome":"throttled","until":"2999-01-01T00:00:00Z"}`)}))
	_, until := sinks.Classify(err)
	require.WithinDuration(t, time.Now().Add(time.Hour), until, time.Minute, "a mistake in the program does not stop the sink for days")
}

func TestTextsOfTheProgramAreCleanedForDatabases(t *testing.T) {
	t.Parallel()
	sink := open(t, testConfig(t))
	answer, err := json.Marshal(map[string]string{"outcome": "ok", "receipt": "a\x00b" + strings.Repeat("é", 2*maxReceiptBytes)})
	require.NoError(t, err)
	receipt, err := sink.Deliver(t.Context(), delivery(t, act{Answer: answer}))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(receipt), "a bé"), receipt[:10])
	require.LessOrEqual(t, len(receipt), maxReceiptBytes+len("…"))
	require.NotContains(t, receipt, "\uFFFD")
}

func TestACrashFailsTheDeliveriesInFlight(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	var group sync.WaitGroup
	for range 5 {
		d := delivery(t, act{Silent: true})
		group.Go(func() {
			if _, err := sink.Deliver(t.Context(), d); sinktest.Class(err) != sinks.ClassUnavailable || !errors.Is(err, ErrEnded) {
				t.Errorf("Deliver returned %v, want an unavailable error", err)
			}
		})
	}
	require.Eventually(t, func() bool { return len(noted(c, journalVariable)) == 6 }, soon, time.Millisecond)
	_, err := sink.Deliver(t.Context(), delivery(t, act{Exit: 3}))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorContains(t, err, "the program ended with exit status 3: boom")
	group.Wait()
	requireWorks(t, sink)
}

func TestAnswersBeforeTheEndOfAProgramCount(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	for started := 1; started <= 20; started++ {
		require.Eventually(t, func() bool {
			return len(noted(c, pidsVariable)) == started && sink.CheckHealth(t.Context()) == nil
		}, soon, time.Millisecond)
		receipt, err := sink.Deliver(t.Context(), delivery(t, act{Last: true}))
		require.NoError(t, err)
		require.EqualValues(t, "last", receipt)
	}
}

func TestADeliveryThatCrashesEveryProgramIsTransient(t *testing.T) {
	t.Parallel()
	sink := open(t, testConfig(t))
	poison := delivery(t, act{Exit: 1})
	for crash := 1; crash <= 2*crashesToBlame; crash++ {
		require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) == nil }, soon, time.Millisecond)
		_, err := sink.Deliver(t.Context(), poison)
		require.ErrorIs(t, err, ErrEnded)
		want := sinks.ClassUnavailable
		if crash%crashesToBlame == 0 {
			want = sinks.ClassTransient
		}
		require.Equal(t, want, sinktest.Class(err), "crash %d: %v", crash, err)
	}
}

func TestRestartPausesGrowUntilAnAnswer(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "broken")
	c.longestPause = time.Hour
	var log lockedBuffer
	sink := open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.Eventually(t, func() bool { return strings.Count(log.String(), "is restarted") == 3 }, soon, time.Millisecond)
	var pauses []time.Duration
	for line := range strings.Lines(log.String()) {
		if _, after, ok := strings.Cut(strings.TrimSpace(line), " after="); ok {
			pause, err := time.ParseDuration(after)
			require.NoError(t, err, line)
			pauses = append(pauses, pause)
		}
	}
	for i, about := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		require.InDelta(t, about, pauses[i], 0.25*float64(about))
	}
	_, err := sink.Deliver(t.Context(), delivery(t, "plain"))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.Error(t, sink.CheckHealth(t.Context()))
	require.Contains(t, log.String(), "ImportError: no module named shop")
}

func TestADeliveryWaitsForTheHello(t *testing.T) {
	t.Parallel()
	for trait, says := range map[string]string{
		"broken":    "the program ended with exit status 1: ImportError: no module named shop",
		"version 2": "it speaks version 2, this sink speaks only version 1",
		"refuses":   "its hello has the error: I want version 2",
		"prints":    `write logs to stderr: "Listening ..."`,
		"no hello":  "no hello within 300ms",
	} {
		t.Run(trait, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t, trait)
			c.longestPause = time.Hour
			c.StartTimeout = 300 * time.Millisecond
			if trait != "no hello" {
				c.StartTimeout = soon
			}
			sink := open(t, c)
			_, err := sink.Deliver(t.Context(), delivery(t, "plain"))
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
			require.ErrorContains(t, err, says)
		})
	}
}

func TestAProgramThatBreaksTheProtocolIsRestarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act  act
		says string
	}{
		"garbage":        {act{Print: "Debug: got one"}, `write logs to stderr: "Debug: got one"`},
		"another line":   {act{Print: `{"line":"log","text":"x"}`}, `line is neither hello nor answer: "{\"line\":\"log\",\"text\":\"x\"}"`},
		"no delivery":    {act{Print: `{"line":"answer","outcome":"ok"}`}, "names no delivery"},
		"odd delivery":   {act{Print: `{"line":"answer","delivery":"1","outcome":"ok"}`}, "is not one of the protocol"},
		"unknown number": {act{Print: `{"line":"answer","delivery":99,"outcome":"ok"}`}, "it answers delivery 99, which it never received"},
		"number zero":    {act{Print: `{"line":"answer","delivery":0,"outcome":"ok"}`}, "it answers delivery 0"},
		"second hello":   {act{Print: `{"line":"hello","version":1}`}, "says hello twice"},
		"huge line":      {act{Huge: 100_000}, "a line on stdout is longer than max_line_bytes, 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := testConfig(t)
			config.MaxLineBytes = 4096
			sink := open(t, config)
			_, err := sink.Deliver(t.Context(), delivery(t, c.act))
			require.ErrorIs(t, err, ErrProtocol)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, sinks.Brief(err), "Debug", "it may repeat the notification")
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
			requireWorks(t, sink)
			require.Len(t, noted(config, pidsVariable), 2)
		})
	}
}

func TestALateAnswerIsIgnored(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	requireWorks(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	held := delivery(t, act{Hold: 2})
	go func() {
		_, err := sink.Deliver(ctx, held)
		ended <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(noted(c, journalVariable), ""), held.ID) }, soon, time.Millisecond)
	cancel()
	require.Equal(t, sinks.ClassCancelled, sinktest.Class(<-ended))
	require.Eventually(t, func() bool {
		lines := noted(c, journalVariable)
		return lines[len(lines)-1] == `{"line":"cancel","delivery":2}`
	}, soon, time.Millisecond, "the program gets a cancel line")
	receipt, err := sink.Deliver(t.Context(), delivery(t, act{Hold: 2}))
	require.NoError(t, err)
	require.EqualValues(t, "held", receipt)
	requireWorks(t, sink)
	require.Len(t, noted(c, pidsVariable), 1)
}

func TestNoAnswerInTimeIsTransient(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	sink := open(t, c)
	ctx := overdue{t.Context(), make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := sink.Deliver(ctx, delivery(t, act{Silent: true}))
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(noted(c, journalVariable)) == 2 }, soon, time.Millisecond)
	requireWorks(t, sink) // so the first line has been written
	close(ctx.done)
	err := <-ended
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, sinks.ClassTransient, sinktest.Class(err))
}

// overdue is a context whose deadline passes when done is closed.
type overdue struct {
	context.Context
	done chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.done }

func (o overdue) Err() error {
	select {
	case <-o.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAProgramThatReadsNothingBlocksNoDelivery(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "never reads")
	c.Grace = 10 * time.Millisecond
	sink := open(t, c)
	require.NoError(t, sink.CheckHealth(t.Context()))
	large := delivery(t, strings.Repeat("x", 1<<20)) // more than a pipe holds
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			began := time.Now()
			_, err := sink.Deliver(within(t, 200*time.Millisecond), large)
			if sinktest.Class(err) != sinks.ClassUnavailable || time.Since(began) > soon {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool { return len(noted(c, pidsVariable)) > 1 }, soon, time.Millisecond,
		"a program that neither reads nor answers for a whole delivery is restarted")
}

func TestANotificationThatIsTooLongIsInvalid(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.MaxLineBytes = 4096
	sink := open(t, c)
	_, err := sink.Deliver(t.Context(), delivery(t, strings.Repeat("x", 5000)))
	require.ErrorIs(t, err, ErrTooLong)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
	requireWorks(t, sink)
}

func TestStderrIsLoggedInLimitedLines(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	c := testConfig(t)
	sink := open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := sink.Deliver(t.Context(), delivery(t, act{Say: "first " + strings.Repeat("x", 3*maxLogLine) + " last"}))
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), delivery(t, act{Say: "second"}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "text=second") }, soon, time.Millisecond)
	require.Contains(t, log.String(), `text="first xxx`)
	require.NotContains(t, log.String(), "last")
	require.Equal(t, 2, strings.Count(log.String(), "stderr of the program"))
}

func TestCloseLetsTheProgramAnswerDeliveriesInFlight(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Grace = soon
	sink := open(t, c)
	requireWorks(t, sink)
	begin := func(what act) <-chan error {
		ended := make(chan error, 1)
		d := delivery(t, what)
		go func() {
			_, err := sink.Deliver(t.Context(), d)
			ended <- err
		}()
		return ended
	}
	silent, held := begin(act{Silent: true}), begin(act{Hold: 2})
	require.Eventually(t, func() bool { return len(noted(c, journalVariable)) == 4 }, soon, time.Millisecond)
	closeSink(t, sink)
	require.NoError(t, <-held, "the program answers one when its stdin ends")
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(<-silent), "it never answers the other one")
	_, err := sink.Deliver(t.Context(), delivery(t, "plain"))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorContains(t, err, "the sink is closed")
	closeSink(t, sink)
}

func TestCloseReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "ignores SIGTERM")
	c.Grace = time.Hour
	sink := open(t, c)
	requireWorks(t, sink)
	began := time.Now()
	require.NoError(t, sink.Close(within(t, 50*time.Millisecond)))
	require.Less(t, time.Since(began), soon)
}

func TestCloseEndsARestartPause(t *testing.T) {
	t.Parallel()
	c := testConfig(t, "broken")
	c.longestPause = time.Hour
	sink := open(t, c)
	require.Eventually(t, func() bool { return sink.CheckHealth(t.Context()) != nil }, soon, time.Millisecond)
	closeSink(t, sink)
}

func TestASinkThatIsNotOpenIsUnavailable(t *testing.T) {
	t.Parallel()
	sink, err := New(sinks.Instance{}, testConfig(t))
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), delivery(t, "plain"))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	closeSink(t, sink)
}

func TestOpenReportsWhyAProgramCannotBeStarted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "plain"), []byte("text"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "headless"), []byte("text"), 0o700))
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{Command: []string{"no-such-program"}}, `command: there is no program "no-such-program" in PATH`},
		{Config{Command: []string{"./none"}, Dir: folder}, "command: there is no program " + folder + "/none"},
		{Config{Command: []string{"./plain"}, Dir: folder}, "cannot be executed"},
		{Config{Command: []string{"./headless"}, Dir: folder}, "command: fork/exec " + folder + "/headless: exec format error"},
		{Config{Command: []string{"sh"}, Dir: folder + "/none"}, "dir: stat " + folder + "/none"},
		{Config{Command: []string{"sh"}, Dir: folder + "/plain"}, "is not a directory"},
	} {
		sink, err := New(sinks.Instance{}, c.config)
		require.NoError(t, err)
		require.ErrorContains(t, sink.Open(t.Context()), c.says)
		closeSink(t, sink)
	}
}

func TestARelativeProgramIsFoundInDir(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	self := c.Command[0]
	c.Dir = t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(c.Dir, "child")))
	c.Command = []string{"./child"}
	requireWorks(t, open(t, c))
}

func TestTextsOfTheProgramDoNotRepeatSecrets(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Command = append(c.Command, "--token", "argument-hunter2", "--password=flag-hunter2")
	c.Env["DB_PASSWORD"] = "variable-hunter2"
	var log lockedBuffer
	sink := open(t, c, sinks.Instance{Name: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const all = "argument-hunter2 flag-hunter2 variable-hunter2"

	receipt, err := sink.Deliver(t.Context(), delivery(t, act{Answer: []byte(`{"outcome":"ok","receipt":"` + all + `"}`)}))
	require.NoError(t, err)
	require.EqualValues(t, "*** *** ***", receipt)
	_, err = sink.Deliver(t.Context(), delivery(t, act{Answer: []byte(`{"outcome":"permanent","error":"` + all + `"}`)}))
	require.EqualError(t, err, "permanent: the program's reason: *** *** ***")
	require.Equal(t, "permanent: the program's reason", sinks.Brief(err), "the text may repeat the notification")
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(err))
	_, err = sink.Deliver(t.Context(), delivery(t, act{Say: all}))
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), delivery(t, act{Print: all}))
	require.ErrorIs(t, err, ErrProtocol)
	require.NotContains(t, err.Error(), "hunter2")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "is restarted") }, soon, time.Millisecond)
	require.Contains(t, log.String(), ` text="*** *** ***"`)
	require.NotContains(t, log.String(), "hunter2")
}
