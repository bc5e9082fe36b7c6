package config_test

import (
	"context"
	"database/sql"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

var update = flag.Bool("update", false, "update the golden files")

// password is the password in the files and variables of testdata.
const password = "hunter2"

// kinds are the sink kinds of these tests.
func kinds(t testing.TB) *sinks.Set {
	t.Helper()
	return setOf(t, httpsink.Kind())
}

func setOf(t testing.TB, kinds ...sinks.Kind) *sinks.Set {
	t.Helper()
	set, err := sinks.NewSet(kinds...)
	require.NoError(t, err)
	return set
}

func load(t testing.TB, source config.Source) (*config.Config, error) {
	t.Helper()
	return config.Load(source, config.Options{Kinds: kinds(t)})
}

// write writes a text to a file and returns its path.
func write(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "waybill.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestMistakesAreReportedTogetherWithTheirLines(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)

			_, err = load(t, config.Source{File: file, Environ: environOf(string(text))})

			var mistakes *config.Error
			require.ErrorAs(t, err, &mistakes)
			require.NotContains(t, err.Error(), password)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600))
			}
			expected, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(expected), mistakes.Error()+"\n")
		})
	}
}

func TestAKindOfTheProgramWithAllKindsIsPointedOut(t *testing.T) {
	t.Parallel()
	sinks, err := os.ReadFile("../../docs/sinks.md")
	require.NoError(t, err)
	for kind := range strings.FieldsSeq(config.KindsOfAll) {
		require.Contains(t, string(sinks), "\n## Kind "+kind+"\n")
		_, err := load(t, config.Source{File: write(t, "database: sqlite:a.db\nsinks: {a: {kind: "+kind+"}}\nroutes: {'*': [a]}\n")})
		require.ErrorContains(t, err, `sinks.a.kind: unknown sink kind "`+kind+`"; known are http; the program waybill-all has it (docs/deployment.md), `+
			"and your own program adds it with program.Kinds")
	}
}

// environOf returns the environment that a file of testdata specifies.
func environOf(text string) (environ []string) {
	for line := range strings.Lines(text) {
		if entry, ok := strings.CutPrefix(line, "# env: "); ok {
			environ = append(environ, strings.TrimSpace(entry))
		}
	}
	return environ
}

// whole is a configuration with all keys.
const whole = `
database: postgres://app:${PASSWORD}@localhost:5432/app?sslmode=disable
outbox: {prefix: mail_outbox, lanes: 4, payload: bytea, receipts: on, retention: 24h}
forwarder:
  name: "${NAME:-left}-1"
  poll: 1s
  listen: false
  lease: 1m
  connections: 12
  shutdown_timeout: 5s
  unrouted: ignore
sinks:
  partner:
    kind: http
    with: {url: "https://partner.example/$$1/$2", headers: {X-Shop: a}, timeout: 3s}
    start: 2026-03-01T01:00:00+01:00
    parallelism: {threshold: "${N}", above: sequential}
    retry:
      {max_attempts: 3, max_age: 48h, initial: 2s, max: 1h, types: {"order.*": {max_attempts: 1}}}
    on_dead: halt
    timeout: 10s
    rate: 50/s, burst 100
    breaker: {max_pause: 1m, off: true}
    fairness: tenant
    hours: {zone: "metadata.zone || 'Europe/Berlin'", from: "08:00", to: 20:00, days: mon-fri, unless: "metadata.urgent == 'true'"}
  other: {kind: http, with: {url: "https://other.example/"}}
routes:
  order.placed: &both [partner, other]
  "customer.*": *both
`

func TestEveryKeyReachesTheForwarder(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, whole), Environ: []string{"PASSWORD=" + password, "N=7"}}

	c, err := load(t, source)
	require.NoError(t, err)
	engine := c.ForwarderConfig(nil)

	require.Equal(t, config.PostgreSQL, c.Database.Dialect())
	require.Equal(t, "postgres://app:"+password+"@localhost:5432/app?sslmode=disable", c.Database.DSN())
	aDay := 24 * time.Hour
	require.Equal(t, config.Outbox{Prefix: "mail_outbox", Lanes: 4, Payload: config.PayloadBytes, Receipts: true, Retention: &aDay}, c.Outbox)
	require.False(t, c.Tables().Listen)
	require.Equal(t, route.To("partner", "other"), engine.Routes["customer.*"])
	partner := engine.Sinks["partner"]
	require.IsType(t, (*httpsink.Sink)(nil), partner.Sink)
	partner.Sink = nil
	require.Equal(t, forwarder.Sink{
		Start:       "2026-03-01T01:00:00+01:00",
		Parallelism: forwarder.Parallelism{Threshold: 7, Above: forwarder.AboveSequential},
		Retry: forwarder.Retry{
			MaxAttempts: 3, MaxAge: 2 * aDay, Initial: 2 * time.Second, Max: time.Hour,
			Types: map[string]forwarder.Retry{"order.*": {MaxAttempts: 1}},
		},
		OnDead:   forwarder.OnDeadHalt,
		Timeout:  10 * time.Second,
		Rate:     forwarder.Rate{Events: 50, Per: time.Second, Burst: 100},
		Breaker:  forwarder.Breaker{MaxPause: time.Minute, Off: true},
		Fairness: "tenant",
		Hours:    forwarder.Hours{Zone: "metadata.zone || 'Europe/Berlin'", From: "08:00", To: "20:00", Days: "mon-fri", Unless: "metadata.urgent == 'true'"},
	}, partner)
	require.Equal(t, forwarder.Sink{Sink: engine.Sinks["other"].Sink}, engine.Sinks["other"], "omitted settings have the engine's defaults")
	engine.Sinks = nil
	require.Equal(t, forwarder.Config{
		Routes:          engine.Routes,
		Name:            "left-1",
		Lanes:           4,
		Poll:            time.Second,
		Lease:           time.Minute,
		Connections:     12,
		ShutdownTimeout: 5 * time.Second,
		Unrouted:        forwarder.UnroutedIgnore,
		Retention:       aDay,
		Logger:          slog.Default(),
	}, engine)
}

func TestARetentionOfZeroKeepsEverything(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, whole), Environ: []string{"PASSWORD=x", "N=7", "WAYBILL_OUTBOX_RETENTION=0"}}
	c, err := load(t, source)
	require.NoError(t, err)
	require.Equal(t, forwarder.KeepForever, c.ForwarderConfig(nil).Retention)

	source.Environ[2] = "WAYBILL_OUTBOX_RETENTION=-1h"
	_, err = load(t, source)
	require.ErrorContains(t, err, "outbox.retention is -1h0m0s: use more than 0")
}

func TestVariablesAndFlagsWinOverTheFile(t *testing.T) {
	t.Parallel()
	environ := []string{
		"PASSWORD=x", "N=7", "NAME=",
		"WAYBILL_DATABASE=sqlite:elsewhere.db",
		"WAYBILL_OUTBOX_LANES=2",
		"WAYBILL_FORWARDER_POLL=2s",
		"WAYBILL_FORWARDER_LISTEN=true",
		"WAYBILL_FORWARDER_NAME=$literally ${this}",
		"WAYBILL_FORWARDER_LEASE=", // counts as not set
		"WAYBILL_SINKS_PARTNER_WITH_TIMEOUT=4s",
		"WAYBILL_SINKS_PARTNER_RETRY_MAX=3h",
		"WAYBILL_SINKS_OTHER_TIMEOUT=7s",
		"WAYBILL_ROUTES_CUSTOMER__=other",
		"WAYBILL_SERVICE_HOST=10.0.0.1",
		"WAYBILL_PORT=tcp://10.0.0.1:8090",
		"WAYBILL_TEST_ANYTHING=1",
	}
	source := config.Source{File: write(t, whole), Environ: environ}

	c, err := load(t, source)
	require.NoError(t, err)
	require.Equal(t, config.SQLite, c.Database.Dialect())
	require.Equal(t, "elsewhere.db", c.Database.DSN())
	require.Equal(t, 2, c.Outbox.Lanes)
	require.Equal(t, 2*time.Second, c.Forwarder.Poll)
	require.True(t, c.Tables().Listen)
	require.Equal(t, "$literally ${this}", c.Forwarder.Name)
	require.Equal(t, time.Minute, c.Forwarder.Lease)
	require.Equal(t, 3*time.Hour, c.Sinks["partner"].Retry.Max)
	require.Equal(t, 7*time.Second, c.Sinks["other"].Timeout)
	require.Equal(t, []route.Rule{{Sink: "other"}}, c.Routes["customer.*"])
	require.Equal(t, []route.Rule{{Sink: "partner"}, {Sink: "other"}}, c.Routes["order.placed"])

	source.Database = "sqlite:flag.db"
	c, err = load(t, source)
	require.NoError(t, err)
	require.Equal(t, "flag.db", c.Database.DSN())
}

func TestLineEndsAtTheEndOfValuesFromOutsideDoNotCount(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "name")
	require.NoError(t, os.WriteFile(secret, []byte("from a file\r\n"), 0o600))
	for _, end := range []string{"\n", "\r\n", "\n\n"} {
		source := config.Source{File: write(t, whole), Environ: []string{
			"PASSWORD=x" + end, "N=7" + end, "NAME=partner" + end,
			"WAYBILL_DATABASE=sqlite:elsewhere.db" + end,
			"WAYBILL_FORWARDER_NAME=file:" + secret + end,
			"WAYBILL_OUTBOX_LANES=2" + end,
		}}
		c, err := load(t, source)
		require.NoError(t, err)
		require.Equal(t, "elsewhere.db", c.Database.DSN())
		require.Equal(t, "from a file", c.Forwarder.Name)
		require.Equal(t, 2, c.Outbox.Lanes)

		source.Environ[3] = ""
		source.Database = "postgres://u:p@127.0.0.1/d" + end
		c, err = load(t, source)
		require.NoError(t, err)
		require.Equal(t, "postgres://u:p@127.0.0.1/d", c.Database.DSN())
	}
}

func TestAForwarderListensUnlessSwitchedOff(t *testing.T) {
	t.Parallel()
	text := `
database: postgres://localhost/app
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"*": [partner]}
`
	c, err := load(t, config.Source{File: write(t, text)})
	require.NoError(t, err)
	require.True(t, c.Tables().Listen)

	tables, err := config.LoadTables(config.Source{File: write(t, text)})
	require.NoError(t, err)
	require.False(t, tables.Listen, "LoadTables reads only the tables")
}

func TestTablesNeedNoFileAndNoOtherSections(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]config.Source{
		"flag":     {Database: "sqlite:outbox.db"},
		"variable": {Environ: []string{"WAYBILL_DATABASE=sqlite:outbox.db"}},
		"file with broken sinks": {
			File:    write(t, "database: sqlite:outbox.db\nsinks: {a: {kind: nonsense, with: {x: \"${UNSET}\"}}}\n"),
			Environ: []string{"WAYBILL_SINKS_A_WITH_X=1", "WAYBILL_ROUTES_X=a"},
		},
		"flag instead of a broken address": {File: write(t, "database: ${UNSET}\n"), Database: "sqlite:outbox.db"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables, err := config.LoadTables(source)
			require.NoError(t, err)
			require.Equal(t, "outbox.db", tables.Database.DSN())
		})
	}
}

func TestTablesReportTheirOwnMistakes(t *testing.T) {
	t.Parallel()
	path := write(t, "outbox: {prefix: \"9\"}\nsink: {}\n")
	_, err := config.LoadTables(config.Source{File: path, Environ: []string{"WAYBILL_OUTBOX_PREFX=a"}})
	require.EqualError(t, err, path+": database is missing: set it in the file, with WAYBILL_DATABASE, or with --database\n"+
		path+`:1: outbox.prefix: invalid table prefix "9": use up to 40 lower-case letters, digits and underscores, beginning with a letter`+"\n"+
		path+`:2: unknown key "sink"; did you mean sinks?`+"\n"+
		"WAYBILL_OUTBOX_PREFX: this variable does not match a key; did you mean WAYBILL_OUTBOX_PREFIX?")

	path = write(t, "outbox: {prefix: billing.order}\n")
	_, err = config.LoadTables(config.Source{File: path, Database: "sqlite:outbox.db"})
	require.EqualError(t, err, path+`:1: outbox.prefix: invalid table prefix "billing.order": this database has no schemas: leave out the part up to the dot`)
	_, err = config.LoadTables(config.Source{File: path, Database: "postgres://localhost/app"})
	require.NoError(t, err)

	_, err = config.LoadTables(config.Source{Database: "oracle://scott:" + password + "@db"})
	require.EqualError(t, err, "--database: database: is not a database address; write postgres://user:password@host:port/name, a list of key=value, mysql://user:password@host:port/name, or sqlite:path")

	_, err = config.LoadTables(config.Source{})
	require.EqualError(t, err, "database is missing: name a configuration file with -c, or set it with WAYBILL_DATABASE or --database")
}

func TestUnreadableFilesAreReported(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "waybill.yml")
	_, err := load(t, config.Source{File: missing})
	require.EqualError(t, err, missing+": the file does not exist")

	folder := t.TempDir()
	_, err = load(t, config.Source{File: folder})
	require.EqualError(t, err, folder+": is a directory")

	huge := write(t, strings.Repeat("# filler\n", 1<<17))
	_, err = load(t, config.Source{File: huge})
	require.EqualError(t, err, huge+": the file is larger than 1 MiB, the limit of a configuration")
}

// allShapes has fields of all shapes that the settings of a kind can have.
type allShapes struct {
	Words   []string          `yaml:"words"`
	Pairs   map[string]int    `yaml:"pairs"`
	Nested  *nested           `yaml:"nested"`
	Absent  *nested           `yaml:"absent"`
	Self    *allShapes        `yaml:"self"`
	Any     any               `yaml:"any"`
	Ratio   float32           `yaml:"ratio"`
	Inlined nested            `yaml:",inline"`
	Hidden  string            `yaml:"-"`
	Items   []nested          `yaml:"items"`
	Labels  map[string]nested `yaml:"labels"`
	Small   uint8             `yaml:"small"`
}

type nested struct {
	Deep string `yaml:"deep"`
}

func (allShapes) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

func TestSettingsOfAllShapes(t *testing.T) {
	t.Parallel()
	var got allShapes
	set := setOf(t, sinks.NewKind("shapes", "", func(_ sinks.Instance, s allShapes) (sinks.Sink, error) {
		got = s
		return s, nil
	}))
	text := `
database: sqlite:outbox.db
sinks:
  a:
    kind: shapes
    with:
      words: [a, "${B}"]
      pairs: {x: 1, y: "${N}"}
      any: {list: [1, "${B}", null], map: {t: true}}
      ratio: 0.5
      deep: inlined
      items: [{deep: one}, {deep: two}]
      labels: {first: {deep: three}}
      small: 255
routes: {"*": [a]}
`
	environ := []string{"B=b", "N=2", "WAYBILL_SINKS_A_WITH_NESTED_DEEP=below", "WAYBILL_SINKS_A_WITH_LABELS_FIRST_DEEP=four"}
	_, err := config.Load(config.Source{File: write(t, text), Environ: environ}, config.Options{Kinds: set})
	require.NoError(t, err)
	require.Equal(t, allShapes{
		Words:   []string{"a", "b"},
		Pairs:   map[string]int{"x": 1, "y": 2},
		Nested:  &nested{"below"},
		Any:     map[string]any{"list": []any{1, "b", nil}, "map": map[string]any{"t": true}},
		Ratio:   0.5,
		Inlined: nested{"inlined"},
		Items:   []nested{{"one"}, {"two"}},
		Labels:  map[string]nested{"first": {"four"}},
		Small:   255,
	}, got)

	_, err = config.Load(config.Source{File: write(t, strings.Replace(text, "255", "256", 1)), Environ: environ}, config.Options{Kinds: set})
	require.ErrorContains(t, err, `:14: sinks.a.with.small is "256": write a whole number from 0 to 255`)
	_, err = config.Load(config.Source{File: write(t, strings.Replace(text, "255", "25.5", 1)), Environ: environ}, config.Options{Kinds: set})
	require.ErrorContains(t, err, `:14: sinks.a.with.small is "25.5": write a whole number from 0 to 255`)
}

func TestTypesAndHandlersOfTheProgramAreCheckedWithTheirLines(t *testing.T) {
	t.Parallel()
	types := registry.New()
	type placed struct{ A int }
	require.NoError(t, registry.Register[placed](types, "order.placed"))
	handlers := map[string][]function.Handler{"billing": {function.On(func(context.Context, placed) error { return nil })}}
	options := config.Options{Kinds: setOf(t, function.Kind(handlers)), Types: types}
	_, err := config.Load(config.Source{File: write(t, `
database: sqlite:outbox.db
sinks:
  billing: {kind: function}
routes:
  order.plcaed: [billing]
`)}, options)
	require.ErrorContains(t, err, "waybill.yaml:6: routes.order.plcaed: matches no registered type; registered are order.placed")

	_, err = config.Load(config.Source{File: write(t, `
database: sqlite:outbox.db
sinks:
  billing: {kind: function}
  shipping: {kind: function}
routes:
  order.placed: [shipping]
`)}, options)
	require.ErrorContains(t, err, "waybill.yaml:4: sinks.billing: no route to the handler of order.placed")

	c, err := config.Load(config.Source{File: write(t, `
database: sqlite:outbox.db
sinks:
  billing: {kind: function}
  shipping: {kind: function}
routes:
  order.placed: [billing, shipping]
`)}, options)
	require.NoError(t, err, "sinks of another program need no functions here")
	require.ErrorIs(t, c.Supplied(), sinks.ErrAbsent)
	require.ErrorContains(t, c.Supplied(), "it: shipping;", "but a forwarder for all sinks is refused")
}

type observer struct{ event.Observer }

func TestOptionsReachTheForwarderAndTheSinks(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A int }](types, "order.placed"))
	var in sinks.Instance
	remember := func(given sinks.Instance, s allShapes) (sinks.Sink, error) { in = given; return s, nil }
	options := config.Options{
		Kinds: setOf(t, sinks.NewKind("shapes", "", remember)), Types: types, Logger: slog.New(slog.DiscardHandler),
		HTTPClient: &http.Client{}, Dial: new(net.Dialer).DialContext,
		Middleware: []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc { return next }},
		Hooks:      forwarder.Hooks{Dead: func(context.Context, *sql.Tx, []event.Parked) error { return nil }},
		Observer:   observer{},
	}
	c, err := config.Load(config.Source{File: write(t, "database: sqlite:a.db\nsinks: {a: {kind: shapes}}\nroutes: {\"*\": [a]}\n")}, options)
	require.NoError(t, err)
	engine := c.ForwarderConfig(nil)
	require.Same(t, types, engine.Types)
	require.Same(t, options.Logger, engine.Logger)
	require.Equal(t, options.Observer, engine.Observer)
	require.Len(t, engine.Sinks["a"].Middleware, 1)
	require.NotNil(t, engine.Sinks["a"].Hooks.Dead)
	require.Equal(t, "a", in.Name)
	require.Same(t, types, in.Types)
	require.Same(t, options.HTTPClient, in.HTTPClient)
	require.NotNil(t, in.Dial)
}
