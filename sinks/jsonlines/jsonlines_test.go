package jsonlines_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSink(t *testing.T, c jsonlines.Config) *jsonlines.Sink {
	t.Helper()
	sink, err := jsonlines.New(c)
	require.NoError(t, err)
	return sink
}

// open opens a sink and closes it when the test ends.
func open(t *testing.T, c jsonlines.Config) *jsonlines.Sink {
	t.Helper()
	sink := newSink(t, c)
	require.NoError(t, sink.Open(t.Context()))
	t.Cleanup(func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink
}

func deliver(t *testing.T, sink sinks.Sink, d *notification.Delivery) notification.Receipt {
	t.Helper()
	receipt, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
	return receipt
}

// read returns the lines of a reader.
func read(t *testing.T, r io.Reader) (lines []jsonlines.Line) {
	t.Helper()
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var l jsonlines.Line
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &l))
		lines = append(lines, l)
	}
	require.NoError(t, scanner.Err())
	return lines
}

func readFile(t *testing.T, path string) []jsonlines.Line {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	return read(t, f)
}

func envelopes(lines []jsonlines.Line) (es []notification.Envelope) {
	for _, l := range lines {
		e := notification.Envelope{
			ID: l.ID, Type: l.Type, Version: l.Version, Key: l.Key, OccurredOn: l.OccurredOn,
			DeliverAt: l.DeliverAt, Metadata: l.Metadata, Payload: l.Payload,
		}
		if l.Base64 != nil {
			e.Payload = *l.Base64
		}
		es = append(es, e)
	}
	return es
}

// collected reads the lines of a file, which have a collection each.
func collected(t *testing.T, path string) (all []sinktest.Collected) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var l jsonlines.CollectionLine
		require.NoError(t, json.Unmarshal(line, &l))
		require.Equal(t, "gröup 1", l.Group)
		all = append(all, sinktest.Collected{ID: l.ID, Raw: line, Members: envelopes(l.Items)})
	}
	return all
}

// losesItsFolder is a sink whose folder is replaced by a file after Open.
type losesItsFolder struct {
	*jsonlines.Sink
	folder string
}

func (l losesItsFolder) Open(ctx context.Context) error {
	return errors.Join(l.Sink.Open(ctx), os.RemoveAll(l.folder), os.WriteFile(l.folder, nil, 0o600))
}

func TestConformance(t *testing.T) {
	for _, fsync := range []bool{false, true} {
		t.Run(fmt.Sprintf("fsync %t", fsync), func(t *testing.T) {
			var path string
			sinktest.Run(t, sinktest.Subject{
				New: func(t *testing.T) sinks.Sink {
					path = filepath.Join(t.TempDir(), "orders.jsonl")
					return newSink(t, jsonlines.Config{Path: path, Fsync: fsync})
				},
				Received:  func(t *testing.T) []notification.Envelope { return envelopes(readFile(t, path)) },
				Collected: func(t *testing.T) []sinktest.Collected { return collected(t, path) },
				Refused: func(n int) *notification.Delivery {
					d := sinktest.NewDelivery(n)
					d.OccurredOn = time.Date(12025, 1, 1, 0, 0, 0, 0, time.UTC) // RFC 3339 cannot represent this year
					return d
				},
				Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
					sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
						folder := filepath.Join(t.TempDir(), "gone")
						require.NoError(t, os.Mkdir(folder, 0o700))
						return losesItsFolder{newSink(t, jsonlines.Config{Path: filepath.Join(folder, "orders.jsonl"), Fsync: fsync}), folder}
					},
				},
				Receipts: true,
			})
		})
	}
}

func TestACollectionIsOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	sink := open(t, jsonlines.Config{Path: path})
	c := &sinks.Collection{ID: "c-1", Group: "jane", Attempt: 1}
	for _, id := range []string{"id-1", "id-2"} {
		d := sinktest.NewDelivery(1)
		d.ID, d.Key, d.Metadata, d.Payload = id, "", nil, []byte("[ 1 ]")
		c.Members = append(c.Members, d)
	}
	receipt, err := sink.DeliverCollection(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, notification.Receipt("jsonlines "+path), receipt)
	deliver(t, sink, c.Members[0])
	const one, other = `{"id":"id-1","type":"sinktest.happened","version":2,"occurred_on":"2025-01-02T03:04:05.000678Z","payload":[1]}`,
		`{"id":"id-2","type":"sinktest.happened","version":2,"occurred_on":"2025-01-02T03:04:05.000678Z","payload":[1]}`
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"id":"c-1","group":"jane","items":[`+one+","+other+"]}\n"+one+"\n", string(text))
}

func TestALineHasTheWholeEnvelope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	sink := open(t, jsonlines.Config{Path: path})
	d := sinktest.NewDelivery(1)
	d.ID = "id-1"
	d.Payload = []byte("{ \"total\": 12345678901234567890,\n \"to\": \"<jane@example.org>\" }")
	require.Equal(t, "jsonlines "+path, string(deliver(t, sink, d)))
	d.Payload = []byte("\x00\xff")
	d.Key, d.Metadata, d.DeliverAt = "", nil, d.OccurredOn.Add(time.Minute)
	deliver(t, sink, d)

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"id":"id-1","type":"sinktest.happened","version":2,"key":"key-1","occurred_on":"2025-01-02T03:04:05.000678Z",`+
		`"metadata":{"content-type":"application/json","correlation-id":"correlation-1"},"payload":{"total":12345678901234567890,"to":"<jane@example.org>"}}
{"id":"id-1","type":"sinktest.happened","version":2,"occurred_on":"2025-01-02T03:04:05.000678Z","deliver_at":"2025-01-02T03:05:05.000678Z","payload_base64":"AP8="}
`, string(text))
}

func TestLinesGoToTheProgramsOutput(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	before := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = before }()
	sink := newSink(t, jsonlines.Config{})
	require.NoError(t, sink.Open(t.Context()))
	d := sinktest.NewDelivery(1)

	require.Equal(t, "jsonlines stdout", string(deliver(t, sink, d)))
	require.NoError(t, sink.Close(t.Context()))

	_, err = w.WriteString("\n") // the output is still open
	require.NoError(t, err)
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, d.ID, read(t, bytes.NewReader(bytes.TrimSpace(text)))[0].ID)
}

func TestABrokenOutputIsUnavailable(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	before := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = before }()
	sink := open(t, jsonlines.Config{})
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestALineThatWasCutShortIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id":"whole"}`+"\n"+`{"id":"cut sho`), 0o600))
	d := sinktest.NewDelivery(1)
	deliver(t, open(t, jsonlines.Config{Path: path}), d)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Equal(t, []string{`{"id":"whole"}`, `{"id":"cut sho`}, lines[:2])
	require.Contains(t, lines[2], d.ID)
}

func TestDeliveriesContinueWhenTheFolderIsBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "mount")
	require.NoError(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "orders.jsonl")
	sink := open(t, jsonlines.Config{Path: path, Fsync: true})
	deliver(t, sink, sinktest.NewDelivery(1))
	require.NoError(t, os.RemoveAll(folder))
	for range 2 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(2))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	}
	require.NoError(t, os.Mkdir(folder, 0o700))
	d := sinktest.NewDelivery(2)
	deliver(t, sink, d)
	require.Equal(t, d.ID, readFile(t, path)[0].ID)
}

func TestOpenRefusesInvalidPaths(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for path, says := range map[string]string{
		filepath.Join(folder, "no", "orders.jsonl"): "the folder " + filepath.Join(folder, "no") + " does not exist; create it",
		folder:                               "is a folder; name a file in it",
		filepath.Join(plain, "orders.jsonl"): plain + " is not a folder",
		"/dev/null":                          `is not a regular file; use "-"`,
		filepath.Join(folder, strings.Repeat("x", 300)): "file name too long",
	} {
		err := newSink(t, jsonlines.Config{Path: path}).Open(t.Context())
		require.ErrorContains(t, err, "path "+path+": ")
		require.ErrorContains(t, err, says)
	}
}

// TestCheckHealthDoesNotChangeTheFile calls CheckHealth while another program is writing a line.
func TestCheckHealthDoesNotChangeTheFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "orders.jsonl")
	sink := newSink(t, jsonlines.Config{Path: path})
	require.NoError(t, sink.CheckHealth(t.Context()))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries)

	require.NoError(t, os.WriteFile(path, []byte(`{"id":`), 0o600))
	require.NoError(t, sink.CheckHealth(t.Context()))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"id":`, string(text))

	require.NoError(t, os.RemoveAll(folder))
	require.ErrorContains(t, sink.CheckHealth(t.Context()), "path "+path+": the folder "+folder+" does not exist; create it")
	require.NoError(t, newSink(t, jsonlines.Config{}).CheckHealth(t.Context()), "the output always exists")
}

func TestAfterCloseDeliveriesAreUnavailable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	sink := newSink(t, jsonlines.Config{Path: path})
	require.NoError(t, sink.Open(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = sink.Close(ended) // Close cannot wait, but closes the sink
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorIs(t, err, jsonlines.ErrClosed)
	require.NoFileExists(t, path)
}

func TestFsyncIsForFilesOnly(t *testing.T) {
	build := func(text string) error {
		_, err := jsonlines.Kind().Build(sinks.Instance{}, func(c any) error { return yaml.Unmarshal([]byte(text), c) })
		return err
	}
	require.NoError(t, build(""))
	require.NoError(t, build("{path: orders.jsonl, fsync: true}"))
	require.ErrorContains(t, build("fsync: true"), "fsync: is for files, but path is the program's output")
}
