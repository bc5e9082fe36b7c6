package program

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tagged is a field of a kind's settings with the tag secret.
type tagged struct {
	path []string
	is   reflect.Type
	tag  string
}

// taggedFields walks the configuration structs of a kind.
func taggedFields(t reflect.Type, path ...string) (all []tagged) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		at := append([]string{}, path...)
		if !f.Anonymous {
			at = append(at, name)
		}
		if tag := f.Tag.Get("secret"); tag != "" && tag != "false" {
			all = append(all, tagged{at, f.Type, tag})
		} else if f.Type.Kind() == reflect.Struct {
			all = append(all, taggedFields(f.Type, at...)...)
		}
	}
	return all
}

// shaped returns a text in the form of the field's value.
func (f tagged) shaped(text string) any {
	switch f.is.Kind() {
	case reflect.Slice:
		return []any{"program", text}
	case reflect.Map:
		return map[string]any{"X-Name": text}
	}
	return text
}

// below returns settings with a value at the path of the field.
func (f tagged) below(value any) map[string]any {
	for i := len(f.path) - 1; i > 0; i-- {
		value = map[string]any{f.path[i]: value}
	}
	return map[string]any{f.path[0]: value}
}

// wrongValues has invalid values of many kinds that contain the secret hunter2.
var wrongValues = []any{
	"hunter2", "hunter2 hünter2", "hunter2\x00", "hunter2\nhunter2", "whsec_hunter2", "whsk_hunter2", "whpk_hunter2",
	"https://user:hunter2@", "https://user:hunter2/x@host", "https://user:hunter2@host:bad/", "https://host:99999/hunter2?hunter2#hunter2",
	"https://host/%hunter2", "https://host/%2", "https://host/a b#hunter2", "ftp://user:hunter2@host:99999/hunter2",
	"smtp://user:hunter2@host:99999/hunter2?hunter2", "smtp://:hunter2@host", "http://user:hunter2@[host", "socks5://user:hunter2@",
	[]any{"hunter2"}, []any{"p", []any{"hunter2"}}, map[string]any{"hunter2x": map[string]any{"a": "hunter2"}},
}

// The test sets each secret of each kind to each invalid value.
func TestNoMistakeQuotesASecret(t *testing.T) {
	t.Parallel()
	kinds := ownKinds(t)
	found := map[string][]string{}
	for _, name := range kinds.Names() {
		kind, _ := kinds.Kind(name)
		for _, field := range taggedFields(reflect.TypeOf(kind.Config()).Elem()) {
			found[name] = append(found[name], strings.Join(field.path, ".")+" "+field.tag)
			for _, wrong := range wrongValues {
				value := wrong
				if text, ok := wrong.(string); ok {
					value = field.shaped(text)
				}
				for _, database := range []any{"sqlite:outbox.db", wrong} {
					file, err := json.Marshal(map[string]any{
						"database": database,
						"sinks":    map[string]any{"a": map[string]any{"kind": name, "with": field.below(value)}},
					})
					require.NoError(t, err)
					r := waybill(t, "config", "check", "--offline", "-c", writeFile(t, string(file)))
					require.Equal(t, exitUsage, r.code)
					output := strings.ReplaceAll(r.stdout+r.stderr, "hunter2x", "") // that is a name, not the secret
					require.NotContains(t, output, "hunter2", "%s", file)
				}
			}
		}
	}
	require.Equal(t, map[string][]string{
		"email":    {"smtp password", "oauth2.token_url password", "oauth2.client_secret true", "oauth2.refresh_token true"},
		"http":     {"url url", "headers true", "bearer true", "password true", "secret true", "secrets true", "proxy password"},
		"kafka":    {"encoding.registry.auth.password true", "encoding.registry.auth.token true", "sasl.password true"},
		"process":  {"command arguments", "env true"},
		"webhooks": {"proxy password", "encryption_keys true"},
	}, found)
}

func TestTheReferenceMarksSecrets(t *testing.T) {
	t.Parallel()
	var reference strings.Builder
	require.NoError(t, writeSinks(&reference, nil, ownKinds(t)))
	for _, row := range []string{
		"Name of the user for basic authentication, without a colon |\n", "Password of the user. **Secret** |\n", "**Secret except for scheme, user and host** |\n",
		"**The password in it is secret** |\n", "**Arguments are secret** |\n",
	} {
		require.Contains(t, reference.String(), row)
	}
}

func TestTheSchemaMarksSecrets(t *testing.T) {
	t.Parallel()
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct{ WriteOnly bool }
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(waybill(t, "config", "schema").stdout), &schema))
	marked := map[string]bool{}
	for name, property := range schema.Defs["kind-http"].Properties {
		if property.WriteOnly {
			marked[name] = true
		}
	}
	require.Equal(t, map[string]bool{"headers": true, "password": true, "bearer": true, "secret": true, "secrets": true}, marked)
}
