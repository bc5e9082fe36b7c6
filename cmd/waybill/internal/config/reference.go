package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/waybill-go/waybill/sinks"
)

// WriteReference writes what all keys mean, those of the sink kinds too, as
// tables in Markdown. It comes from the structs that are decoded into.
func WriteReference(w io.Writer, kinds *sinks.Set) error {
	var b strings.Builder
	b.WriteString("| key | meaning |\n|---|---|\n")
	writeKeys(&b, reflect.ValueOf(new(Config)).Elem(), "")
	for _, name := range kinds.Names() {
		kind, _ := kinds.Kind(name)
		fmt.Fprintf(&b, "\n## Kind %s\n\n%s. Below `sinks.NAME.with`:\n\n", name, upperFirst(strings.TrimSuffix(kind.Summary, ".")))
		b.WriteString("| key | meaning |\n|---|---|\n")
		writeKeys(&b, reflect.ValueOf(kind.Config()).Elem(), "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plain keeps Markdown from reading something into a text.
var plain = strings.NewReplacer(`|`, `\|`, `*`, `\*`, `_`, `\_`, `<`, `\<`)

// writeKeys writes a row for each key of a struct, and for those below it.
func writeKeys(b *strings.Builder, v reflect.Value, path string) {
	for _, f := range fieldsOf(v) {
		at := join(path, f.name)
		fmt.Fprintf(b, "| `%s` | %s |\n", at, plain.Replace(f.tag.Get("doc")))
		value := f.value
		for value.Kind() == reflect.Map || value.Kind() == reflect.Slice {
			if value.Kind() == reflect.Map {
				at += ".NAME"
			} else {
				at += "[]"
			}
			value = reflect.New(value.Type().Elem()).Elem()
		}
		if value.Kind() == reflect.Struct && value.Type() != reflect.TypeFor[With]() && !isScalar(value) {
			writeKeys(b, value, at)
		}
	}
}

func upperFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
