package email

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	stdmultipart "mime/multipart"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// headers are the only headers that a mail of fuzzSink may have.
var headers = []string{
	"Auto-Submitted", "Cc", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id",
	"Mime-Version", "Reply-To", "Subject", "To", "Waybill-Id",
}

// fuzzSink returns a sink with payload fields in every kind of template.
func fuzzSink(t testing.TB) *Sink {
	t.Helper()
	sink, err := New(sinks.Instance{Name: "mail"}, Config{SMTP: "smtp://localhost", From: "shop@example.com", FS: fstest.MapFS{
		"t/to.tmpl":       {Data: []byte("{{address .Payload.a .Payload.b}}")},
		"t/cc.tmpl":       {Data: []byte("{{.Payload.c}}")},
		"t/reply-to.tmpl": {Data: []byte("{{.Payload.c}}")},
		"t/subject.tmpl":  {Data: []byte("{{.Payload.a}} {{.Payload.c}}")},
		"t/text.tmpl":     {Data: []byte("{{.Payload.a}}\n{{.Payload.b}}\n{{.Payload.c}}")},
		"t/html.tmpl":     {Data: []byte("<p title='{{.Payload.a}}'>{{.Payload.c}}")},
	}})
	require.NoError(t, err)
	return sink
}

func FuzzAPayloadAddsNoHeaderAndNoRecipient(f *testing.F) {
	for _, seed := range [][4]string{
		{"id", "Jane", "jane@example.org", ""},
		{"a\r\nBcc: x@evil.example", "x\r\nBcc: y@evil.example\r\n\r\nbody", "jane@example.org\r\nBcc: x@evil.example", "a@b.example\nX: y"},
		{"<>@ \x7f", `" <x@evil.example>, "`, `"a\"b c"@example.org`, `=?utf-8?q?a=0D=0ABcc:_x?= <a@b.example>`},
		{strings.Repeat("ä", 120), strings.Repeat("x", 199), "pelé@exämple.org", "g: a@b.example, c@d.example;"},
		{"1", "\" &=?", `"0\"0 0"@example.org`, "=?AAA00?q?A=0A 00000000?=0<0@000000000>"},
		{"1", "Jane", "jane@example.org", "a@b.example, c@d.example"},
		{".", "\u2028\u0085\v", "a@[127.0.0.1]", "a@b.example,,"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	sink := fuzzSink(f)
	f.Fuzz(func(t *testing.T, id, a, b, c string) {
		payload, err := json.Marshal(map[string]string{"a": a, "b": b, "c": c})
		require.NoError(t, err)
		m, err := sink.composer.compose(&notification.Envelope{ID: id, Type: "t", Version: 1, OccurredOn: time.Unix(1, 0), Payload: payload})
		if err != nil {
			return // permanent: nothing is sent
		}
		parsed, err := mail.ReadMessage(bytes.NewReader(m.Raw))
		require.NoError(t, err)
		for name, values := range parsed.Header {
			require.Contains(t, headers, name)
			require.Len(t, values, 1, name)
		}
		to, err := parsed.Header.AddressList("To")
		require.NoError(t, err)
		require.Len(t, to, 1, "the function address gives one recipient")
		require.LessOrEqual(t, len(m.To), 2, "each other expression gives one recipient")
		for _, name := range []string{"Cc", "Reply-To"} {
			list, err := parsed.Header.AddressList(name)
			require.True(t, err == nil || errors.Is(err, mail.ErrHeaderNotPresent))
			require.LessOrEqual(t, len(list), 1, name)
		}
		for _, address := range m.To {
			require.NotContains(t, address, "\r")
			require.NotContains(t, address, "\n")
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
		require.NoError(t, err)
		var texts map[string]string // decoded from JSON, so that they are valid UTF-8
		require.NoError(t, json.Unmarshal(payload, &texts))
		require.Equal(t, line.Collapse(texts["a"]+" "+texts["c"]), subject)
		for line := range bytes.SplitSeq(m.Raw, []byte("\r\n")) {
			require.LessOrEqual(t, len(line), 998)
			require.NotContains(t, string(line), "\n")
			require.NotContains(t, string(line), "\r")
		}
		again, err := sink.composer.compose(&notification.Envelope{ID: id, Type: "t", Version: 1, OccurredOn: time.Unix(1, 0), Payload: payload})
		require.NoError(t, err)
		require.Equal(t, m.Raw, again.Raw)
	})
}

func TestAValueIsAtMostOneRecipient(t *testing.T) {
	address := rapid.SampledFrom([]string{"a@x.com", "B <b@y.com>", "<c@w.com>", "a", `"q"@x.com`})
	between := rapid.SampledFrom([]string{",", ", ", "\n", ",\r\n", ";", `", `, "g: ", "(", ")", ">, <", `"`, "\\", "@", "[", "]", "=?utf-8?q?", "?="})
	for template, places := range map[string]int{
		"{{.Payload.v}}":                          1,
		"{{.Payload.v}} <c@z.com>":                1,
		`"{{.Payload.v}}" <c@z.com>`:              1,
		"C <{{.Payload.v}}>":                      1,
		"{{.Payload.v}}@z.com":                    1,
		"({{.Payload.v}}) c@z.com":                1,
		"{{.Payload.v}}, {{.Payload.v}}, c@z.com": 3,
	} {
		sink, err := New(sinks.Instance{Name: "mail"}, Config{SMTP: "smtp://localhost", From: "shop@example.com", FS: fstest.MapFS{
			"t/to.tmpl": {Data: []byte(template)}, "t/subject.tmpl": {Data: []byte("s")}, "t/text.tmpl": {Data: []byte("t")},
		}})
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			value := strings.Join(rapid.SliceOfN(rapid.OneOf(address, between), 0, 6).Draw(t, "value"), "")
			payload, err := json.Marshal(map[string]string{"v": value})
			require.NoError(t, err)
			m, err := sink.composer.compose(&notification.Envelope{ID: "1", Type: "t", Version: 1, OccurredOn: time.Unix(1, 0), Payload: payload})
			if err == nil {
				require.LessOrEqual(t, len(m.To), places, "%s with %q", template, value)
			}
		})
	}
}

func FuzzFilesAndURLsAddNoHeader(f *testing.F) {
	for _, seed := range [][4]string{
		{"a.csv", "text/csv", "https://example.com/u", "de"},
		{"a\r\nX-Evil: 1\r\n\r\n", "text/csv\r\nX-Evil: 1", "https://example.com/\r\nX-Evil: 1", "de\r\nX-Evil: 1"},
		{`a"; x="`, `text/plain; x="a\"b"`, "mailto:u@example.com?subject=<x>", "de-AT, en;q=0.5"},
		{"\u2028ä=?utf-8?q?=0D=0AX:?=", `text/plain; a*=utf-8''%0D%0AX-Evil:%201`, "https://ü/", "x-private"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	sink, err := New(sinks.Instance{Name: "mail"}, Config{SMTP: "smtp://localhost", From: "shop@example.com", FS: fstest.MapFS{
		"t/to.tmpl":               {Data: []byte("a@example.org")},
		"t/subject.tmpl":          {Data: []byte("{{.Payload.locale}}")},
		"t/text.tmpl":             {Data: []byte("{{.Payload.name}}")},
		"t/html.tmpl":             {Data: []byte("<img src='cid:{{.Payload.name}}'>")},
		"t/locale.tmpl":           {Data: []byte("{{.Payload.locale}}")},
		"t/attachments.tmpl":      {Data: []byte(`{{attachment .Payload.name .Payload.type "YQ=="}}`)},
		"t/list-unsubscribe.tmpl": {Data: []byte("{{.Payload.url}}")},
		"t/a.csv":                 {Data: []byte("a")},
	}})
	require.NoError(f, err)
	allowed := append(slices.Clone(headers), "List-Unsubscribe", "List-Unsubscribe-Post")
	f.Fuzz(func(t *testing.T, name, mediaType, url, locale string) {
		payload, err := json.Marshal(map[string]string{"name": name, "type": mediaType, "url": url, "locale": locale})
		require.NoError(t, err)
		m, err := sink.composer.compose(&notification.Envelope{ID: "1", Type: "t", Version: 1, OccurredOn: time.Unix(1, 0), Payload: payload})
		if err != nil {
			return // permanent: nothing is sent
		}
		parsed, err := mail.ReadMessage(bytes.NewReader(m.Raw))
		require.NoError(t, err)
		for name, values := range parsed.Header {
			require.Contains(t, allowed, name)
			require.Len(t, values, 1, name)
		}
		_, params, err := mime.ParseMediaType(parsed.Header.Get("Content-Type"))
		require.NoError(t, err)
		parts := stdmultipart.NewReader(parsed.Body, params["boundary"])
		_, err = parts.NextRawPart() // text and html
		require.NoError(t, err)
		attached, err := parts.NextRawPart()
		require.NoError(t, err)
		for name, values := range attached.Header {
			require.Contains(t, []string{"Content-Disposition", "Content-Transfer-Encoding", "Content-Type"}, name)
			require.Len(t, values, 1, name)
		}
		_, disposition, err := mime.ParseMediaType(attached.Header.Get("Content-Disposition"))
		require.NoError(t, err)
		require.Equal(t, line.Collapse(name), disposition["filename"])
		_, err = parts.NextRawPart()
		require.ErrorIs(t, err, io.EOF)
		for line := range bytes.SplitSeq(m.Raw, []byte("\r\n")) {
			require.LessOrEqual(t, len(line), 998)
			require.NotContains(t, string(line), "\n")
			require.NotContains(t, string(line), "\r")
		}
	})
}

func FuzzPayloadDecodes(f *testing.F) {
	for _, seed := range []string{`{"a": null, "b": [null, 1e400]}`, `[]`, `"x"`, ``, `{} {}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if _, err := decodePayload(payload); err != nil {
			require.ErrorIs(t, err, ErrPayload)
			return
		}
		require.True(t, json.Valid(payload))
	})
}

func TestDifferentIDsGiveDifferentValidMessageIDs(t *testing.T) {
	seen := make(map[string]string)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringN(1, -1, notification.MaxIDLength).Draw(t, "id")
		made := messageID(id, "mail", "shop@example.com")
		local, domain, _ := strings.Cut(made, "@")
		require.Equal(t, "example.com", domain)
		require.LessOrEqual(t, len(made), 250)
		for _, atom := range strings.Split(local, ".") {
			require.NotEmpty(t, atom)
			require.Equal(t, -1, strings.IndexFunc(atom, func(r rune) bool {
				return !slices.Contains([]rune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_%"), r)
			}), atom)
		}
		if other, taken := seen[made]; taken {
			require.Equal(t, other, id)
		}
		seen[made] = id
	})
}
