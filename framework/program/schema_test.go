package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// schema returns the schema that the program prints, compiled.
func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	r := waybill(t, "config", "schema")
	require.Zero(t, r.code, r.stderr)
	return compiled(t, r.stdout)
}

func compiled(t testing.TB, text string) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("waybill.schema.json", document))
	made, err := compiler.Compile("waybill.schema.json")
	require.NoError(t, err)
	return made
}

// judge validates a YAML text like an editor.
func judge(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	var value any
	require.NoError(t, yaml.Unmarshal([]byte(text), &value), text)
	asJSON, err := json.Marshal(value)
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	require.NoError(t, err)
	return s.Validate(document)
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// completed returns whole configurations for an example that has only settings of a kind: a sink's, or
// only the lines below with.
func completed(example, kind string) (all []string) {
	head := "sinks:\n  example:\n    kind: " + kind + "\n"
	switch {
	case strings.HasPrefix(example, "      "):
		for line := range strings.Lines(example) {
			all = append(all, head+"    with:\n"+line)
		}
	case strings.HasPrefix(example, "    "):
		all = append(all, head+example)
	default:
		all = append(all, example)
	}
	return all
}

func TestTheSchemaAcceptsEveryExampleOfTheDocumentation(t *testing.T) {
	t.Parallel()
	ofAllKinds, err := os.ReadFile("../../docs/waybill.schema.json")
	require.NoError(t, err)
	s := compiled(t, string(ofAllKinds))
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		kind := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(page), "sinks-"), ".md")
		for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			for _, example := range completed(block[1], kind) {
				require.NoError(t, judge(t, s, example), "%s: %s", page, block[1])
				found++
			}
		}
	}
	require.Greater(t, found, 10)
}

func TestTheSchemaAcceptsWhatTheProgramWrites(t *testing.T) {
	t.Parallel()
	s := schema(t)
	require.NoError(t, judge(t, s, example))
	require.NoError(t, judge(t, s, switchedOn()))

	r := waybillWith(t, placeholdersSet, "config", "show", "-c", writeFile(t, strings.Replace(switchedOn(), "./mail", mailTemplates(t), 1)))
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, judge(t, s, r.stdout))
}

// A schema easily misses these forms of values.
func TestTheSchemaAcceptsWhatForwardAccepts(t *testing.T) {
	t.Parallel()
	text := `
database: "file:database"
outbox: {prefix: , lanes: "${LANES}", receipts: On, retention: 0}
forwarder: {lease: }
sinks:
  partner: &partner
    kind: http
    with: {url: "https://partner.example/", headers: {X-Count: 1, X-Yes: true}, timeout: 1m0.5s, guard: {mode: "${MODE:-off}"}}
    parallelism: {threshold: "file:lanes"}
    retry: {max: 1h, types: {"*": {max_attempts: 3}}}
    breaker: {off: "${OFF}"}
  again: *partner
  log: {kind: "${KIND}", with: }
routes:
  "*": [partner, again, "${SINK}", {sink: partner, when: "true", payload: {order: payload.id}}]
`
	file := writeFile(t, text)
	folder := filepath.Dir(file)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "database"), []byte("sqlite:outbox.db"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "lanes"), []byte("1"), 0o600))
	r := waybillWith(t, []string{"LANES=1", "KIND=jsonlines", "SINK=log", "OFF=true"}, "config", "check", "--offline", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, judge(t, schema(t), text))
}

func TestTheSchemaRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for text, at := range map[string]string{
		"databasis: sqlite:outbox.db":                                                "",
		"outbox: [a]":                                                                "/outbox",
		"outbox: {lanes: many}":                                                      "/outbox/lanes",
		"outbox: {lanes: 0}":                                                         "/outbox/lanes",
		"outbox: {payload: xml}":                                                     "/outbox/payload",
		"outbox: {receipts: perhaps}":                                                "/outbox/receipts",
		"forwarder: {lease: 15}":                                                     "/forwarder/lease",
		"forwarder: {poll: 1 ms}":                                                    "/forwarder/poll",
		"sinks: {a: {with: {url: x}}}":                                               "/sinks/a",
		"sinks: {a: {kind: htttp}}":                                                  "/sinks/a/kind",
		"sinks: {a: {kind: http, with: {uri: x}}}":                                   "/sinks/a/with",
		"sinks: {a: {kind: http, with: {brokers: [x]}}}":                             "/sinks/a/with",
		"sinks: {a: {kind: http, with: {method: GET}}}":                              "/sinks/a/with/method",
		"sinks: {a: {kind: http, with: {tls: {ca: x}}}}":                             "/sinks/a/with/tls",
		"sinks: {a: {kind: http, with: {secrets: x}}}":                               "/sinks/a/with/secrets",
		"sinks: {a: {kind: kafka, with: {acks: none}}}":                              "/sinks/a/with/acks",
		"sinks: {a: {kind: http, parallelism: {threshold: -1}}}":                     "/sinks/a/parallelism/threshold",
		"sinks: {a: {kind: http, on_dead: stop}}":                                    "/sinks/a/on_dead",
		"sinks: {a: {kind: http, retry: {types: {\"*\": {max: soon}}}}}":             "/sinks/a/retry/types/*/max",
		"sinks: {a: {kind: http, retry: {types: {\"*\": {types: {a: {max: 1s}}}}}}}": "/sinks/a/retry/types/*",
		"routes: {a: b}":                                                             "/routes/a",
		"routes: {a: [{sink: b, wen: c}]}":                                           "/routes/a/0",
		"routes: {a: [[b]]}":                                                         "/routes/a/0",
		"routes: [a]":                                                                "/routes",
	} {
		var refused *jsonschema.ValidationError
		require.ErrorAs(t, judge(t, s, text), &refused, text)
		require.Contains(t, places(refused), at, text)
	}
}

// places lists where a value is wrong.
func places(e *jsonschema.ValidationError) []string {
	all := []string{}
	if len(e.Causes) == 0 {
		return append(all, strings.TrimSuffix("/"+strings.Join(e.InstanceLocation, "/"), "/"))
	}
	for _, cause := range e.Causes {
		all = append(all, places(cause)...)
	}
	return all
}

// The test tries each value of each key with choices.
func TestForwardAcceptsOnlyTheChoicesOfTheSchema(t *testing.T) {
	t.Parallel()
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(waybill(t, "config", "schema").stdout), &document))
	kinds := ownKinds(t)
	keys := 0
	check := func(kind string) func(path string, choices []any) {
		return func(path string, choices []any) {
			keys++
			for _, choice := range append(choices, "nonsense") {
				value := choice
				names := strings.Split(path, ".")
				for i := len(names) - 1; i > 0; i-- {
					value = map[string]any{names[i]: value}
					if names[i-1] == "example" {
						value.(map[string]any)["kind"] = kind
					}
				}
				text, err := yaml.Marshal(map[string]any{names[0]: value})
				require.NoError(t, err)
				r := waybill(t, "config", "check", "--offline", "-c", writeFile(t, string(text)))
				complains := regexp.MustCompile(regexp.QuoteMeta(path) + "(:| is )").MatchString(r.stderr)
				require.Equal(t, choice == "nonsense", complains, "%s\n%s", text, r.stderr)
			}
		}
	}
	eachChoice(document, "", check("jsonlines"))
	for _, kind := range kinds.Names() {
		settings := document["$defs"].(map[string]any)["kind-"+kind].(map[string]any)
		eachChoice(settings, "sinks.example.with", check(kind))
	}
	require.Greater(t, keys, 8)
}

// eachChoice visits the keys of a schema that have choices, except for kind.
func eachChoice(schema map[string]any, path string, visit func(path string, choices []any)) {
	if some, ok := schema["anyOf"].([]any); ok {
		if choices, ok := some[0].(map[string]any)["enum"].([]any); ok && !strings.HasSuffix(path, ".kind") {
			visit(path, choices)
		}
	}
	if below, ok := schema["additionalProperties"].(map[string]any); ok {
		eachChoice(below, path+".example", visit)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range properties {
		eachChoice(below.(map[string]any), strings.TrimPrefix(path+"."+name, "."), visit)
	}
}

// The test compares the defaults in descriptions with those of the structs.
func TestDefaultsInDescriptionsAreCorrect(t *testing.T) {
	t.Parallel()
	inWords := regexp.MustCompile(`Default (.*)$`)
	compared := 0
	var walk func(value any)
	walk = func(value any) {
		property, ok := value.(map[string]any)
		if !ok {
			return
		}
		description, _ := property["description"].(string)
		words := inWords.FindStringSubmatch(description)
		if standard, ok := property["default"]; ok && words != nil {
			require.Regexp(t, "^"+regexp.QuoteMeta(fmt.Sprint(standard))+`([,;:.]|$)`, words[1], description)
			compared++
		}
		for _, below := range property {
			walk(below)
		}
	}
	var document any
	decoder := json.NewDecoder(strings.NewReader(waybill(t, "config", "schema").stdout))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&document))
	walk(document)
	require.Greater(t, compared, 30)
}
