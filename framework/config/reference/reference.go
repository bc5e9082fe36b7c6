package config

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
)

// WriteReference writes a Markdown table of all keys, except those of the sink kinds. It is
// generated from the structs of the configuration.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	writeTable(&b, reflect.ValueOf(allDefaults()).Elem())
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSinks writes a section about each sink kind, with its keys and with what the answers of
// its destination mean. pages are the files to link to, by kind.
func WriteSinks(w io.Writer, kinds *sinks.Set, pages map[string]string) error {
	var b strings.Builder
	for _, name := range kinds.Names() {
		kind, _ := kinds.Kind(name)
		fmt.Fprintf(&b, "## Kind %s\n\n%s.", name, upperFirst(strings.TrimSuffix(kind.Summary, ".")))
		if page, ok := pages[name]; ok {
			fmt.Fprintf(&b, " More in [%s](%[1]s).", page)
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
	if len(fieldsOf(v)) == 0 {
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

// writeKeys writes a row for each key of a struct, and for those below it.
func writeKeys(b *strings.Builder, v reflect.Value, path string) {
	for _, f := range fieldsOf(v) {
		at := join(path, f.name)
		meaning, standard := splitDoc(f.doc())
		if value, ok := defaultOf(f.value); ok && standard == "" {
			standard = fmt.Sprint(value)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", at, typeName(f.value), plain.Replace(standard), plain.Replace(meaning)+f.secrecy(untagged).mark())
		if f.isNested() {
			continue
		}
		value := f.value
		for value.Kind() == reflect.Map || value.Kind() == reflect.Slice || value.Kind() == reflect.Pointer {
			switch value.Kind() {
			case reflect.Map:
				at += ".NAME"
			case reflect.Slice:
				at += "[]"
			}
			value = elementOf(value)
		}
		if value.Kind() == reflect.Struct && value.Type() != reflect.TypeFor[With]() && !isScalar(value) {
			writeKeys(b, value, at)
		}
	}
}

// mark returns what the reference says about secrets.
func (s secrecy) mark() string {
	switch s {
	case hidesNothing, untagged:
		return ""
	case hidesPassword:
		return ". **The password in it is secret**"
	case hidesPath:
		return ". **Secret except for scheme, user and host**"
	case hidesArguments:
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
	case isScalar(v):
		return "text"
	case v.Kind() == reflect.Slice:
		return "list of " + typeName(elementOf(v))
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() != reflect.Struct:
		return "names and " + typeName(elementOf(v))
	case v.Kind() == reflect.Struct && slices.ContainsFunc(fieldsOf(v), field.isShort):
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
