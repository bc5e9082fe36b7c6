package config_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config/reference"
	"github.com/waybill-go/waybill/sinks"
)

func TestTheReferenceExplainsAnswers(t *testing.T) {
	type settings struct {
		Address string       `yaml:"address" doc:"of the desk. Required"`
		Dial    func() error `yaml:"-"`
	}
	build := func(sinks.Instance, settings) (sinks.Sink, error) { return nil, nil }
	set, err := sinks.NewSet(
		sinks.NewKind("pager", "a page for each notification", build,
			sinks.Answer{Says: "`OK|DONE`", Means: "delivered"}, sinks.Answer{Says: "WAIT", Means: "throttled for 1 min"}),
		sinks.NewKind("quiet", "says nothing", build),
	)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, reference.WriteSinks(&b, set, nil))
	pager, quiet, _ := strings.Cut(b.String(), "## Kind quiet")
	require.Contains(t, pager, "| answer | meaning |\n|---|---|\n| `OK\\|DONE` | delivered |\n| WAIT | throttled for 1 min |\n")
	require.NotContains(t, quiet, "answer")
	require.NotContains(t, b.String(), "Dial", "fields for Go only are not keys")
	require.NoError(t, reference.WriteSchema(&b, set))
	require.NotContains(t, b.String(), "Dial")
}
