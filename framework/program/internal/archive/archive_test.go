package archive_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/archive"
	"github.com/waybill-go/waybill/framework/store"
)

var moment = time.Date(2026, 3, 1, 12, 30, 0, 123456000, time.UTC)

// samples returns a row with all fields, and rows with as few as possible.
func samples() []admin.Exported {
	return []admin.Exported{
		{
			Envelope: notification.Envelope{Offset: 7, ID: "a", Type: "order.placed", Version: 2, Key: "o-1", OccurredOn: moment, DeliverAt: moment.Add(time.Hour),
				Metadata: notification.Metadata{"tenant": "<acme>", "trace": ""}, Payload: []byte(`{"order": "o-1"}`)},
			Receipts: []store.TracedReceipt{
				{Sink: "mail", Receipt: store.Receipt{Offset: 7, ID: "a", Receipt: "smtp 250", Attempt: 3, DeliveredAt: moment}},
				{Sink: "web", Receipt: store.Receipt{Offset: 7, ID: "a", Receipt: "", Attempt: 1, DeliveredAt: moment}},
			},
		},
		{Envelope: notification.Envelope{Offset: 9, ID: "b", Type: "label", Version: 1, OccurredOn: moment, Payload: []byte("%PDF \xff")}},
		{Envelope: notification.Envelope{Offset: 10, ID: "c", Type: "nothing", Version: 1, OccurredOn: moment, Payload: []byte{}}},
		{Envelope: notification.Envelope{Offset: 11, ID: "d", Type: "null", Version: 1, OccurredOn: moment, Payload: []byte("null")}},
	}
}

func write(t *testing.T, name string, rows []admin.Exported) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	a, err := archive.Create(path, io.Discard)
	require.NoError(t, err)
	for i := range rows {
		require.NoError(t, a.Write(&rows[i]))
	}
	_, err = os.Stat(path)
	require.ErrorIs(t, err, fs.ErrNotExist, "the file appears only once it is complete")
	require.NoError(t, a.Commit())
	return path
}

func TestEachRowIsALine(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(io.Reader) io.Reader{
		"x.jsonl": func(r io.Reader) io.Reader { return r },
		"x.jsonl.gz": func(r io.Reader) io.Reader {
			z, err := gzip.NewReader(r)
			require.NoError(t, err)
			return z
		},
		"x.jsonl.zst": func(r io.Reader) io.Reader {
			z, err := zstd.NewReader(r)
			require.NoError(t, err)
			t.Cleanup(z.Close)
			return z
		},
	} {
		f, err := os.Open(write(t, name, samples()))
		require.NoError(t, err)
		text, err := io.ReadAll(open(f))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, `{"offset":7,"id":"a","type":"order.placed","version":2,"key":"o-1","occurred_on":"2026-03-01T12:30:00.123456Z","deliver_at":"2026-03-01T13:30:00.123456Z",`+
			`"metadata":{"tenant":"<acme>","trace":""},"payload":{"order":"o-1"},"receipts":[`+
			`{"sink":"mail","receipt":"smtp 250","attempt":3,"delivered_at":"2026-03-01T12:30:00.123456Z"},{"sink":"web","receipt":"","attempt":1,"delivered_at":"2026-03-01T12:30:00.123456Z"}]}
{"offset":9,"id":"b","type":"label","version":1,"occurred_on":"2026-03-01T12:30:00.123456Z","payload_base64":"JVBERiD/"}
{"offset":10,"id":"c","type":"nothing","version":1,"occurred_on":"2026-03-01T12:30:00.123456Z","payload_base64":""}
{"offset":11,"id":"d","type":"null","version":1,"occurred_on":"2026-03-01T12:30:00.123456Z","payload":null}
`, string(text), name)
		var line archive.Line
		require.NoError(t, json.NewDecoder(bytes.NewReader(text)).Decode(&line))
		require.EqualValues(t, 7, line.Offset)
	}
}

func TestAnArchiveIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.jsonl", "x.jsonl.gz", "x.jsonl.zst"} {
		path := write(t, name, samples())
		var rows []string
		require.NoError(t, archive.Read(path, func(line *archive.Line) error {
			payload := string(line.Payload)
			if line.Base64 != nil {
				payload = string(*line.Base64)
			}
			rows = append(rows, line.ID+" "+payload)
			return nil
		}), name)
		require.Equal(t, []string{`a {"order":"o-1"}`, "b %PDF \xff", "c ", "d null"}, rows, name)
		stop := errors.New("stop")
		err := archive.Read(path, func(*archive.Line) error { return stop })
		require.ErrorIs(t, err, stop)
		require.EqualError(t, err, path+": row 1: stop")

		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text[:len(text)-20], 0o600))
		require.ErrorIs(t, archive.Read(path, func(*archive.Line) error { return nil }), io.ErrUnexpectedEOF, "%s is cut", name)
	}
}

func TestAFileIsCompleteOrDoesNotExist(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "x.jsonl")
	row := samples()[0]
	files := func() []os.DirEntry {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		return entries
	}
	a, err := archive.Create(path, io.Discard)
	require.NoError(t, err)
	require.NoError(t, a.Write(&row))
	a.Discard()
	require.Empty(t, files())

	a, err = archive.Create(path, io.Discard)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("of another"), 0o600)) // while the archive is written
	require.ErrorIs(t, a.Commit(), fs.ErrExist)
	_, err = archive.Create(path, io.Discard)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "does not replace files")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "of another", string(text))
	require.Len(t, files(), 1)

	_, err = archive.Create(filepath.Join(folder, "none", "x.jsonl"), io.Discard)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestATimeThatJSONCannotHaveIsRefusedWithAHint(t *testing.T) {
	t.Parallel()
	row := samples()[1]
	row.OccurredOn = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	a, err := archive.Create(archive.Stdout, io.Discard)
	require.NoError(t, err)
	require.ErrorContains(t, a.Write(&row), "write offset 9: JSON cannot have times after the year 9999: leave out the row with --to or --type")
}
