package email_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// sendTo sends a mail with this to.tmpl to a test server, and returns its recipients.
func sendTo(t *testing.T, template string, payload map[string]any) ([]string, error) {
	t.Helper()
	return sendWith(t, map[string]string{"to.tmpl": template}, payload)
}

func sendWith(t *testing.T, files map[string]string, payload map[string]any) ([]string, error) {
	t.Helper()
	server := startServer(t, smtptest.Config{})
	all := map[string]string{"to.tmpl": "a@x.com", "subject.tmpl": "s", "text.tmpl": "t"}
	maps.Copy(all, files)
	encoded, err := json.Marshal(payload)
	require.NoError(t, err)
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", all)})
	_, err = sink.Deliver(within(t), delivery(string(encoded)))
	if err != nil {
		assert.Zero(t, server.Connections(), "the server gets no command")
		return nil, err
	}
	return server.Messages()[0].To, nil
}

func TestAnExpressionGivesOneAddress(t *testing.T) {
	for _, c := range []struct{ name, template, value string }{
		{"comma", "{{.Payload.v}}", "a@x.com, victim@y.com"},
		{"comma, no space", "{{.Payload.v}}", "a@x.com,victim@y.com"},
		{"names", "{{.Payload.v}}", "A <a@x.com>, V <victim@y.com>"},
		{"line break", "{{.Payload.v}}", "a@x.com\nvictim@y.com"},
		{"comma and line break", "{{.Payload.v}}", "a@x.com,\r\nvictim@y.com"},
		{"group", "{{.Payload.v}}", "g: a@x.com, victim@y.com;"},
		{"beside others", "b@x.com, {{.Payload.v}}, c@x.com", "a@x.com, victim@y.com"},
		{"in a name", "{{.Payload.v}} <a@x.com>", "victim@y.com, A"},
		{"in a quoted name", `"{{.Payload.v}}" <a@x.com>`, `A" <victim@y.com>, "`},
		{"an address that ends quotes", `"{{.Payload.v}}" <a@x.com>`, `x"@foo, victim@y.com, "@bar`},
		{"in brackets", "A <{{.Payload.v}}>", "a@x.com>, <victim@y.com"},
		{"before a domain", "{{.Payload.v}}@x.com", "victim@y.com,a"},
		{"in an encoded word", "=?utf-8?q?{{.Payload.v}}?= <a@x.com>", "A?= <victim@y.com>, =?utf-8?q?"},
		{"in a condition", "{{if true}}{{.Payload.v}}{{end}}", "a@x.com, victim@y.com"},
		{"otherwise", "{{if false}}{{else}}{{.Payload.v}}{{end}}", "a@x.com, victim@y.com"},
		{"in a loop", "{{range .Payload.list}}{{.}},{{end}}", "a@x.com, victim@y.com"},
		{"with", "{{with .Payload.v}}{{.}}{{end}}", "a@x.com, victim@y.com"},
		{"by a variable", "{{$v := .Payload.v}}{{$v}}", "a@x.com, victim@y.com"},
		{"by a variable set later", `{{$v := ""}}{{$v = .Payload.v}}{{$v}}`, "a@x.com, victim@y.com"},
		{"by a function", `{{printf "%s" .Payload.v}}`, "a@x.com, victim@y.com"},
		{"by a template", `{{define "v"}}{{.}}{{end}}{{template "v" .Payload.v}}`, "a@x.com, victim@y.com"},
		{"by a block", `{{block "v" .Payload.v}}{{.}}{{end}}`, "a@x.com, victim@y.com"},
		{"past the stand-in for a comma", "{{.Payload.v}}", "a@x.com\x1c victim@y.com"},
		{"past the stand-in for a line break", "{{.Payload.v}}", "a@x.com\x1d victim@y.com"},
	} {
		for _, file := range []string{"to.tmpl", "cc.tmpl", "bcc.tmpl", "reply-to.tmpl"} {
			t.Run(c.name+" in "+file, func(t *testing.T) {
				_, err := sendWith(t, map[string]string{file: c.template}, map[string]any{"v": c.value, "list": []string{c.value}})
				assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
				require.ErrorIs(t, err, email.ErrAddress)
				assert.ErrorContains(t, err, "customer.signed-up/"+file)
			})
		}
	}
}

func TestTheErrorOfAListInOneValueNamesTheFunctionAddresses(t *testing.T) {
	for _, value := range []string{"a@x.com, victim@y.com", "a@x.com\nvictim@y.com"} {
		_, err := sendTo(t, "{{.Payload.v}}", map[string]any{"v": value})
		assert.ErrorContains(t, err, "an expression must give one address; write {{addresses ...}}")
		assert.NotContains(t, err.Error(), "victim", "the error does not quote the payload")
	}
}

func TestOneAddressIsUnchanged(t *testing.T) {
	for _, c := range []struct {
		template, value string
		to              []string
	}{
		{"{{.Payload.v}}", " a@x.com\n", []string{"a@x.com"}},
		{"{{.Payload.v}}", `"Doe, Jane" <jane@x.com>`, []string{"jane@x.com"}},
		{`"{{.Payload.v}}" <jane@x.com>`, "Doe, Jane", []string{"jane@x.com"}},
		{"{{address .Payload.v `jane@x.com`}}", "Doe, Jane", []string{"jane@x.com"}},
		{"{{.Payload.v}}@x.com", "jane", []string{"jane@x.com"}},
		{"{{.Payload.v}}, b@x.com, \"C, D\" <c@x.com>", "a@x.com", []string{"a@x.com", "b@x.com", "c@x.com"}},
		{"{{range .Payload.list}}{{.}}, {{end}}", "a@x.com", []string{"a@x.com"}},
		{"a@x.com{{with .Payload.none}}, {{.}}{{end}}", "", []string{"a@x.com"}},
		{"{{.Payload.none}}, a@x.com", "", []string{"a@x.com"}},
	} {
		to, err := sendTo(t, c.template, map[string]any{"v": c.value, "list": []string{c.value}, "none": nil})
		require.NoError(t, err, c.template)
		assert.Equal(t, c.to, to, c.template)
	}
}

func TestTheFunctionAddressesAcceptsAnyNumber(t *testing.T) {
	for _, c := range []struct {
		template string
		value    any
		to       []string
	}{
		{"{{addresses .Payload.v}}", `a@x.com, "Doe, Jane" <b@x.com>`, []string{"a@x.com", "b@x.com"}},
		{"{{.Payload.v | addresses}}", "a@x.com\r\nb@x.com\n", []string{"a@x.com", "b@x.com"}},
		{"{{addresses .Payload.v}}", []string{"a@x.com", "B <b@x.com>"}, []string{"a@x.com", "b@x.com"}},
		{"c@x.com, {{addresses .Payload.v}}", nil, []string{"c@x.com"}},
		{"c@x.com, {{addresses .Payload.v}}", []string{}, []string{"c@x.com"}},
		{"c@x.com, {{addresses .Payload.v}}, d@x.com", "a@x.com,b@x.com", []string{"c@x.com", "a@x.com", "b@x.com", "d@x.com"}},
	} {
		to, err := sendTo(t, c.template, map[string]any{"v": c.value})
		require.NoError(t, err, "%v", c.value)
		assert.Equal(t, c.to, to)
	}
	for _, value := range []any{"a@x.com; b@x.com", []string{"a@x.com, b@x.com"}, []any{1}, map[string]any{}, 7} {
		_, err := sendTo(t, "{{addresses .Payload.v}}", map[string]any{"v": value})
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", value)
	}
}
