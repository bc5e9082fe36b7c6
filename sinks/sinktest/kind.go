package sinktest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/sinks"
)

// RunKind checks a kind, one subtest for each of these rules:
//
//   - The defaults of its configuration change only fields that are zero, and setting them
//     twice has no further effect.
//   - The required fields are enough to build a sink, and the configuration is then the same
//     whether it comes from Go or from a file.
//   - Each key of the configuration has a description.
//   - Each answer begins with "delivered", with the name of a class, or with "as" if the
//     destination names the class itself.
//
// required is a configuration that has the required fields only.
func RunKind[C any](t *testing.T, kind sinks.Kind, required C) {
	t.Run("defaults keep the fields that are set", func(t *testing.T) {
		full := new(C)
		fill(reflect.ValueOf(full).Elem())
		given := *full
		setDefaults(full)
		same(t, *full, given)
	})
	t.Run("defaults keep a field that is set alone", func(t *testing.T) {
		for i := range reflect.TypeFor[C]().NumField() {
			if !reflect.TypeFor[C]().Field(i).IsExported() {
				continue
			}
			one := new(C)
			field := reflect.ValueOf(one).Elem().Field(i)
			fill(field)
			given := field.Interface()
			setDefaults(one)
			if field.Kind() != reflect.Struct { // fields of the struct may get defaults
				same(t, field.Interface(), given)
			}
		}
	})
	t.Run("setting defaults twice has no further effect", func(t *testing.T) {
		once := required
		setDefaults(&once)
		twice := once
		setDefaults(&twice)
		same(t, twice, once)
	})
	t.Run("each key is described", func(t *testing.T) { described(t, reflect.TypeFor[C]()) })
	t.Run("answers begin with a class", func(t *testing.T) {
		for _, a := range kind.Answers {
			if a.Says == "" || !slices.ContainsFunc(meanings(), func(m string) bool { return strings.HasPrefix(a.Means, m) }) {
				t.Errorf("answer %q means %q, want one that begins with one of %q", a.Says, a.Means, meanings())
			}
		}
	})
	t.Run("required fields are enough", func(t *testing.T) {
		var read C
		sink, err := kind.Build(sinks.Instance{}, func(config any) error {
			overlay(reflect.ValueOf(config).Elem(), reflect.ValueOf(required))
			read = *config.(*C)
			return nil
		})
		if err != nil || sink == nil {
			t.Fatalf("Build returned %v and the error %v", sink, err)
		}
		given := required
		setDefaults(&given)
		setDefaults(&read)
		same(t, read, given)
	})
}

func described(t *testing.T, config reflect.Type) {
	t.Helper()
	for field := range config.Fields() {
		switch {
		case !field.IsExported() || field.Tag.Get("yaml") == "-":
			continue
		case field.Type.Kind() == reflect.Struct: // a mapping needs no text, since its keys have one
			described(t, field.Type)
		case field.Tag.Get("doc") == "":
			t.Errorf("the field %s lacks the tag doc", field.Name)
		}
		if field.Tag.Get("yaml") == "" {
			t.Errorf("the field %s lacks the tag yaml", field.Name)
		}
	}
}

// meanings are the words with which the meaning of an answer may begin.
func meanings() []string {
	known := []string{"delivered", "as "}
	for c := sinks.ClassTransient; c <= sinks.ClassCancelled; c++ {
		known = append(known, c.String())
	}
	return known
}

func setDefaults(config any) {
	if d, ok := config.(sinks.Defaulter); ok {
		d.SetDefaults()
	}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// fill sets a value, or all fields of a struct, to something that is not zero. Interfaces and
// functions stay nil, because no default is an interface or a function.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.String:
		v.SetString("given")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(17)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(17)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.17)
	}
}

// overlay copies the fields that are not zero, as decoding a file does.
func overlay(to, from reflect.Value) {
	for i := range from.NumField() {
		switch {
		case !from.Type().Field(i).IsExported() || from.Field(i).IsZero():
		case from.Field(i).Kind() == reflect.Struct:
			overlay(to.Field(i), from.Field(i))
		default:
			to.Field(i).Set(from.Field(i))
		}
	}
}
