package process

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks"
)

func build(t *testing.T, config string) (sinks.Sink, error) {
	t.Helper()
	return Kind().Build(sinks.Instance{Name: "shop"}, func(c any) error {
		return yaml.Unmarshal([]byte(config), c)
	})
}

func TestASinkIsBuiltFromYAML(t *testing.T) {
	t.Parallel()
	built, err := build(t, `
command: [python3, handler.py]
dir: /srv/shop
env: {SHOP: "1"}
inherit_env: [JAVA_HOME, "AWS_*"]
grace: 3s
max_line_bytes: 2048
`)
	require.NoError(t, err)
	require.Equal(t, Config{
		Command: []string{"python3", "handler.py"}, Dir: "/srv/shop", Env: map[string]string{"SHOP": "1"},
		InheritEnv: []string{"JAVA_HOME", "AWS_*"},
		Grace:      3 * time.Second, StartTimeout: DefaultStartTimeout,
		MaxLineBytes: 2048,
	}, built.(*Sink).config)
}

func TestAllMistakesOfAConfigurationAreReported(t *testing.T) {
	t.Parallel()
	_, err := build(t, `
dir: "a\0b"
env: {"": "1", "A=B": "1", C: "x\0"}
inherit_env: ["", "A=B", "A*B", "**", "$HOME", "A, B", "A\0", "*", GOOD_1, "GOOD_*"]
grace: -1s
start_timeout: -1s
max_line_bytes: 12
`)
	for _, want := range []string{
		"command: is missing; give the program and its arguments",
		"dir: contains a NUL byte",
		`env: "" is not the name of a variable`,
		`env: "A=B" is not the name of a variable`,
		"env.C: the value contains a NUL byte",
		`inherit_env: "" is neither`,
		`inherit_env: "A=B" is neither`,
		`inherit_env: "A*B" is neither`,
		`inherit_env: "**" is neither`,
		`inherit_env: "$HOME" is neither`,
		`inherit_env: "A, B" is neither`,
		`inherit_env: "A\x00" is neither the name of a variable nor the beginning of names with a * at its end`,
		"grace: -1s is negative; leave it out for 5s",
		"start_timeout: -1s is negative; leave it out for 30s",
		"max_line_bytes: 12 is outside 1024..1073741824",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 15)
	_, err = build(t, `command: ["", "x"]`)
	require.EqualError(t, err, "command: the program is empty; give it first, such as [python3, handler.py]")
	_, err = build(t, `command: ["x", "a\0"]`)
	require.ErrorContains(t, err, "command: contains a NUL byte")
}
