package crashtest

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// payload is the payload of a notification. It describes its row, so that the sink sees what was changed on the way.
type payload struct {
	Key    string          `json:"key"`
	N      int64           `json:"n"` // number among the ordered notifications of the key; 0 if it has no order
	ID     string          `json:"id,omitempty"`
	Type   string          `json:"type"`
	At     string          `json:"at,omitempty"` // when it occurred, unless the database set the time
	Filler json.RawMessage `json:"filler"`
	Sum    uint32          `json:"sum"` // of the filler
}

// The extremes of what a log accepts. Texts that a database's collation might take for equal stand beside each other.
var (
	oddTexts = []string{
		"", "x", "X", "x ", "x\t", "\u00e9", "e\u0301", "\u00df", "ss", "\U0001f600", "\ufffd\uffff\U0010ffff", "\u200b\u202e\u2028\u0085\ufeff",
		`'"\%_*;--$1?{{.}}`, "\x01\x1b\x7f\r\n", "%00%zz",
	}
	oddKeys = append([]string{strings.Repeat("k", 1021), strings.Repeat("\U0001f511", 255)}, oddTexts...)
	// oddTimes are in UTC, and as the sink gets them.
	oddTimes = [][2]string{
		{lastTime, "9999-12-31T23:59:59.999999Z"}, {"0001-01-01 00:00:00.001", "0001-01-01T00:00:00.001Z"}, {"0999-02-28 23:59:59.9999991", "0999-02-28T23:59:59.999999Z"},
		{"1582-10-10 12:00:00", "1582-10-10T12:00:00Z"}, {"1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z"},
		{"2024-02-29 01:30:00.1234561", "2024-02-29T01:30:00.123456Z"},
	}
	oddMetadata = []string{
		`{}`, `{"": "", " ": "\u0001\r\n", "Tenant": "a", "tenant": "\ud83d\ude00"}`, `{"a": null, "b": [1, {"c": 2.50}], "d": true, "e": 12345678901234567890.5}`,
		`{"content-type": "text/plain\r\nX-Injected: 1", "traceparent": "00-zz", "tracestate": "\u2028"}`,
		`{"content-type": "application/json; charset=\"\u00fc\"", "long": "` + strings.Repeat("\u00fc", 4000) + `"}`,
	}
	oddFillers = []string{
		`null`, `[  ]`, `1.0000000000000000000000000010e-5`, `"\u0000\ud83d\ude00\/"`, `{"n": -1, "n": "twice", "": {"key": "other"}}`,
		strings.Repeat(`[`, 25) + strings.Repeat(`]`, 25), `"` + strings.Repeat("\u2028\U0010ffff", 2000) + `"`,
	}
)

const (
	largest = 512 << 10 // the size of the largest payloads, which are rare
	soon    = 2 * time.Second

	lastTime    = "9999-12-31 23:59:59.999999"
	recentTimes = 4 // index of the first of oddTimes that a record of Kafka can have
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// shape draws the columns of a row that are not given: half of the rows leave out what has a default. A row with an order
// is due at once.
func (w *writer) shape(e *entry) {
	r := w.random
	e.columns, e.values = e.columns[:0], nil
	add := func(column string, value any) {
		e.columns, e.values = append(e.columns, column), append(e.values, value)
	}
	body := payload{Key: e.Key, N: e.N, ID: e.ID, Type: "crash.happened", Filler: json.RawMessage(pick(r, oddFillers))}
	switch chance := r.Float64(); {
	case chance < 0.1:
		body.Type = "crash." + strings.Repeat("t", 249)
	case chance < 0.5:
		body.Type = "crash." + pick(r, oddTexts)
	}
	if r.Float64() < largestShare {
		body.Filler = json.RawMessage(`"` + strings.Repeat("x", largest) + `"`)
	}
	body.Sum = crc32.ChecksumIEEE(body.Filler)
	add("type", body.Type)
	if e.ID != "" {
		add("id", e.ID)
	}
	if e.Key != "" || r.IntN(2) == 0 {
		add("key", e.Key)
	}
	if r.IntN(2) == 0 {
		times := oddTimes
		if w.RecordTimes {
			times = oddTimes[recentTimes:]
		}
		at := pick(r, times)
		add("occurred_on", at[0]+w.dialect.zone)
		body.At = at[1]
	}
	switch {
	case e.cancelled:
		add("deliver_at", lastTime+w.dialect.zone)
	case e.later:
		add("deliver_at", time.Now().UTC().Add(time.Duration(r.Int64N(int64(soon)))).Format("2006-01-02 15:04:05.000000")+w.dialect.zone)
	case r.IntN(4) == 0:
		add("deliver_at", pick(r, oddTimes[1:])[0]+w.dialect.zone)
	}
	if r.IntN(2) == 0 {
		add("metadata", pick(r, oddMetadata))
	}
	if r.IntN(4) == 0 {
		add("version", pick(r, []int{1, 2, 32767}))
	}
	add("payload", body.String())
}

// String returns the payload as JSON, with the filler byte for byte.
func (p payload) String() string {
	filler := p.Filler
	p.Filler = json.RawMessage(`0`)
	text, err := json.Marshal(p)
	if err != nil {
		return err.Error() // never: the texts are UTF-8
	}
	return strings.Replace(string(text), `"filler":0`, `"filler": `+string(filler), 1) + "\n"
}

// changed returns what differs between a payload's description and the request that brought it.
func (p payload) changed(h http.Header) string {
	for name, want := range map[string]string{headerID: p.ID, headerType: p.Type, headerKey: p.Key, headerTime: p.At} {
		got, err := url.PathUnescape(h.Get(name))
		if err != nil || got != want && (want != "" || name == headerKey) {
			return fmt.Sprintf("%s is %q instead of %q", name, h.Get(name), want)
		}
	}
	if crc32.ChecksumIEEE(p.Filler) != p.Sum {
		return "the payload has other bytes"
	}
	return ""
}
