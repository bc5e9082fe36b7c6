package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// vault is a user's kind.
type vault struct {
	Whole     string            `yaml:"whole" secret:"true"`
	URL       string            `yaml:"url" secret:"url"`
	DSN       string            `yaml:"dsn" secret:"password"`
	Command   []string          `yaml:"command" secret:"arguments"`
	Values    map[string]string `yaml:"values" secret:"true"`
	Below     lock              `yaml:"below" secret:"true"`
	Pin       int               `yaml:"pin" secret:"true"`
	Misspelt  string            `yaml:"misspelt" secret:"yes"`
	APIKey    string            `yaml:"api_key"`
	KeyFile   string            `yaml:"key_file"`
	SortKey   string            `yaml:"sort_key" secret:"false"`
	Endpoint  string            `yaml:"endpoint"`
	Free      any               `yaml:"free"`
	Passwords []string          `yaml:"passwords"`
}

type lock struct {
	Combination string `yaml:"combination"`
	Colour      string `yaml:"colour" secret:"false"`
}

// Validate quotes all settings, which a kind should not do.
func (v *vault) Validate() error {
	if v.Whole != "wrong" {
		return nil
	}
	return errors.Join(
		fmt.Errorf("url: %q is wrong, as is %s", v.URL, strings.Join(v.Command, " ")),
		fmt.Errorf("dsn: %s", v.DSN),
		fmt.Errorf("values: %v, %v", v.Values, v.Below),
	)
}

func (*vault) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

// withVault returns a configuration with this kind.
func withVault(t testing.TB, with string) (config.Source, *sinks.Set) {
	t.Helper()
	set := setOf(t, sinks.NewKind("vault", "", func(_ sinks.Instance, v vault) (sinks.Sink, error) { return &v, nil }))
	file := write(t, "database: sqlite:outbox.db\nsinks:\n  a:\n    kind: vault\n    with: "+with+"\nroutes: {\"*\": [a]}\n")
	return config.Source{File: file, Environ: []string{"KEY=hunter2", "WAYBILL_SINKS_A_WITH_PIN=2222"}}, set
}

func showVault(t testing.TB, with string) string {
	t.Helper()
	source, set := withVault(t, with)
	shown, err := config.Show(source, config.Options{Kinds: set})
	require.NoError(t, err)
	return string(shown)
}

func TestTagsDecideWhatIsMasked(t *testing.T) {
	t.Parallel()
	for value, shown := range map[string]string{
		`{whole: hunter2}`:                                 `whole: '***'`,
		`{whole: "a${KEY}b"}`:                              `whole: '***${KEY}***'`,
		`{whole: "a$${KEY}b"}`:                             `whole: '***'`,
		`{whole: ""}`:                                      `whole: ""`,
		`{misspelt: hunter2}`:                              `misspelt: '***'`,
		`{pin: 1}`:                                         `pin: '***'`,
		`{values: {a.b: hunter2, c: "${KEY}"}}`:            "a.b: '***'\n        c: ${KEY}",
		`{below: {combination: hunter2, colour: red}}`:     "combination: '***'\n        colour: red",
		`{command: [run, hunter2, "${KEY}"]}`:              `command: [run, '***', '${KEY}']`,
		`{command: [run, --token=hunter2, -t, -phunter2]}`: `command: [run, --token=***, -t, '***']`,
		`{command: [run, "--token=${KEY:-hunter2}"]}`:      `command: [run, '--token=${KEY}']`,

		`{url: "https://hooks.example"}`:                          `url: https://hooks.example`,
		`{url: "https://hooks.example/"}`:                         `url: https://hooks.example/`,
		`{url: "https://hooks.example/a/hunter2?b=c#d"}`:          `url: https://hooks.example/***`,
		`{url: "https://hooks.example:443?hunter2"}`:              `url: https://hooks.example:443?***`,
		`{url: "https://me:hunter2@hooks.example/x"}`:             `url: https://me:***@hooks.example/***`,
		`{url: "https://me:12/hunter2@hooks.example/x"}`:          `url: https://me:***@hooks.example/***`,
		`{url: "https://hunter2@hooks.example/x"}`:                `url: https://***@hooks.example/***`,
		`{url: "https://hunter2:@hooks.example/x"}`:               `url: https://***@hooks.example/***`,
		`{url: "https://{{.Metadata.tenant}}.example/{{.Type}}"}`: `url: https://{{.Metadata.tenant}}.example/***`,
		`{url: "https://hooks.example/${KEY}?token=hunter2"}`:     `url: https://hooks.example/${KEY}***`,
		`{url: hunter2}`: `url: '***'`,

		`{dsn: "smtp://me:hunter2@mail.example:25"}`:              `dsn: smtp://me:***@mail.example:25`,
		`{dsn: "smtp://me:a@hunter2@mail.example"}`:               `dsn: smtp://me:***@mail.example`,
		`{dsn: "smtp://me@mail.example"}`:                         `dsn: smtp://me@mail.example`,
		`{dsn: "postgres://db/x?sslpassword=hunter2&a=b"}`:        `dsn: postgres://db/x?sslpassword=***&a=b`,
		`{dsn: "postgres://db/x?password='hunter'hunter2 2&a=b"}`: `dsn: postgres://db/x?password=***&a=b`,
		`{dsn: "host=db password=hunter2&hunter2 user=me"}`:       `dsn: host=db password=*** user=me`,
		`{dsn: "host=db password = 'a \\'hunter2' user=me"}`:      `dsn: host=db password = *** user=me`,
		`{dsn: 'host=db password=a\ hunter2 user=me'}`:            `dsn: host=db password=*** user=me`,
		`{dsn: "postgres://me:${KEY:-hunter2}@${KEY}/x"}`:         `dsn: postgres://me:${KEY}@${KEY}/x`,
		`{endpoint: "https://me:hunter2@x.example/path?token=a"}`: `endpoint: https://me:***@x.example/path?token=***`,
		`{api_key: hunter2, key_file: /run/key, sort_key: id}`:    "api_key: '***'\n      key_file: /run/key\n      sort_key: id",
		`{passwords: [hunter2]}`:                                  `passwords: ['***']`,
		`{free: {list: [1, {secret: hunter2}], token: {a: b}}}`:   "list: [1, {secret: '***'}]\n        token:\n          a: '***'",
	} {
		text := showVault(t, value)
		require.Contains(t, text, shown, value)
		require.NotContains(t, text, "hunter2", value)
	}
}

func TestSecretsInErrorsOfAKindAreMasked(t *testing.T) {
	t.Parallel()
	source, set := withVault(t, `{whole: wrong, url: "https://h.example/hunter2", command: [run, hunter2, -x], dsn: "smtp://me:hunter2@mail", values: {a: 'hunter2 "x"'}, below: {combination: hunter2, colour: red}}`)
	_, err := config.Load(source, config.Options{Kinds: set})
	require.EqualError(t, err, source.File+`:5: sinks.a.with.url: "https://h.example/***" is ***, as is run *** -x
`+source.File+`:5: sinks.a.with.dsn: smtp://me:***@mail
`+source.File+`:5: sinks.a.with.values: map[a:***], {*** red}`)
}

func TestAWrongSecretIsNotQuoted(t *testing.T) {
	t.Parallel()
	for value, message := range map[string]string{
		`{pin: hunter2}`:                 `sinks.a.with.pin is "***": write a whole number`,
		`{pin: "${KEY}"}`:                `sinks.a.with.pin is "${KEY}": write a whole number`,
		`{below: {combination:hunter2}}`: `sinks.a.with.below: a key has a colon in it and no value: write a space after the colon`,
		`{values: {a:hunter2}}`:          `sinks.a.with.values: a key has a colon in it and no value: write a space after the colon`,
	} {
		source, set := withVault(t, value)
		source.Environ = []string{"KEY=hunter2"}
		_, err := config.Load(source, config.Options{Kinds: set})
		require.ErrorContains(t, err, message)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// A condition can look like a setting with a password.
func TestRoutesAreNotMasked(t *testing.T) {
	t.Parallel()
	shown := show(t, config.Source{File: write(t, `
database: sqlite:outbox.db
sinks: {token: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"secret.*": [{sink: token, when: payload.token == 'a', payload: {password: payload.id}}]}
`)})
	for _, line := range []string{"  token:\n    kind: http", "secret.*: [{sink: token, when: payload.token == 'a', payload: {password: payload.id}}]"} {
		require.Contains(t, shown, line)
	}
}
