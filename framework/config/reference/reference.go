// Package reference writes what users read of the configuration: tables of its keys in Markdown, and a
// JSON Schema. Both are made from the structs that are decoded into.
package reference

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/sinks"
)

// WriteKeys writes a Markdown table of all keys, except those of the sink kinds.
func WriteKeys(w io.Writer) error {
	var b strings.Builder
	writeTable(&b, reflect.ValueOf(config.Defaults()).Elem())
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSinks writes a section about each sink kind, with its keys and with what the answers of
// its destination mean. notes are sentences in Markdown for the beginning of a section, by kind.
func WriteSinks(w io.Writer, kinds *sinks.Set, notes map[string]string) error {
	var b strings.Builder
	for _, name := range kinds.Names() {
		kind, _ := kinds.Kind(name)
		fmt.Fprintf(&b, "## Kind %s\n\n%s.", name, upperFirst(strings.TrimSuffix(kind.Summary, ".")))
		if note, ok := notes[name]; ok {
			b.WriteString(" " + note)
		}
		b.WriteString("\n\n")
		writeTable(&b, reflect.ValueOf(kind.Config()).Elem())
		b.WriteString("\n")
		writeAnswers(&b, kind.Answers)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeTable(b *strings.Builder, v reflect.Value) {
	if len(keys.Of(v)) == 0 {
		b.WriteString("It has no settings.\n")
		return
	}
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	writeKeys(b, v, "")
}

func writeAnswers(b *strings.Builder, answers []sinks.Answer) {
	if len(answers) == 0 {
		return
	}
	b.WriteString("| answer | meaning |\n|---|---|\n")
	for _, a := range answers {
		fmt.Fprintf(b, "| %s | %s |\n", cell.Replace(a.Says), cell.Replace(a.Means))
	}
	b.WriteString("\n")
}

// cell escapes a Markdown text for a cell.
var cell = strings.NewReplacer(`|`, `\|`)

// plain escapes a plain text for a cell.
var plain = strings.NewReplacer(`|`, `\|`, `*`, `\*`, `_`, `\_`, `<`, `\<`)

// writeKeys writes a row for each key of a struct, and for those below it. A mapping that needs
// no explanation has no row, only those of its keys. With the tag link, its keys are
// explained elsewhere.
func writeKeys(b *strings.Builder, v reflect.Value, path string) {
	for _, f := range keys.Of(v) {
		at := keys.Join(path, f.Name)
		meaning, standard := splitDoc(f.Doc())
		if value, ok := defaultOf(f.Value); ok && standard == "" {
			standard = fmt.Sprint(value)
		}
		meaning = plain.Replace(meaning) + mark(f.Secrecy(secret.Untagged))
		link := f.Tag.Get("link")
		if link != "" {
			meaning += ": see [" + link + "](" + link + ")"
		}
		below, name := elementIn(f.Value)
		isMapping := below.Kind() == reflect.Struct && below.Type() != reflect.TypeFor[config.With]() && !keys.IsScalar(below)
		if meaning != "" || !isMapping {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", at, typeName(f.Value), plain.Replace(standard), meaning)
		}
		if isMapping && !f.IsNested() && link == "" {
			writeKeys(b, below, at+name)
		}
	}
}

// elementIn returns the element of maps, lists and pointers, and how a path names it.
func elementIn(v reflect.Value) (element reflect.Value, name string) {
	for {
		switch v.Kind() {
		case reflect.Map:
			name += ".NAME"
		case reflect.Slice:
			name += "[]"
		case reflect.Pointer:
		default:
			return v, name
		}
		v = elementOf(v)
	}
}

// mark returns what the reference says about secrets.
func mark(s secret.Secrecy) string {
	switch s {
	case secret.Nothing, secret.Untagged:
		return ""
	case secret.Password:
		return ". **The password in it is secret**"
	case secret.Path:
		return ". **Secret except for scheme, user and host**"
	case secret.Arguments:
		return ". **Arguments are secret**"
	}
	return ". **Secret**"
}

// lastSentence matches a doc tag that ends with "Required" or "Default …".
var lastSentence = regexp.MustCompile(`^(.*?)(?:^|[.;] )(?:([Rr]equired)|[Dd]efault:? (.*?))\.?$`)

// splitDoc splits a doc tag into the description and the default at its end. A default in the
// middle of the text stays there.
func splitDoc(doc string) (meaning, standard string) {
	parts := lastSentence.FindStringSubmatch(doc)
	if parts == nil || strings.Contains(parts[3], ". ") {
		return strings.TrimSuffix(doc, "."), ""
	}
	return parts[1], strings.ToLower(parts[2]) + parts[3]
}

// typeName returns the type of a key in plain words.
func typeName(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "duration"
	case v.Kind() == reflect.Pointer:
		return typeName(elementOf(v))
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanInt(), v.CanUint():
		return "whole number"
	case v.CanFloat():
		return "number"
	case v.Kind() == reflect.Interface:
		return "anything"
	case keys.IsScalar(v):
		return "text"
	case v.Kind() == reflect.Slice:
		return "list of " + typeName(elementOf(v))
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() != reflect.Struct:
		return "names and " + typeName(elementOf(v))
	case v.Kind() == reflect.Struct && slices.ContainsFunc(keys.Of(v), keys.Field.IsShort):
		return "text or mapping"
	}
	return "mapping"
}

func upperFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
