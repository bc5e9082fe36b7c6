package sinktest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/sinks"
)

// RunKind checks what a kind's configuration promises: its defaults fill what was left out,
// and nothing else, however often they are set; and with the required fields only a sink can
// be built, which has the same configuration whether Go or a file gives it. required is a
// configuration with these fields and no other. The kind's answers begin with "delivered",
// the name of a class, or "as" for what the destination says itself.
func RunKind[C any](t *testing.T, kind sinks.Kind, required C) {
	t.Run("defaults change nothing that is given", func(t *testing.T) {
		full := new(C)
		fill(reflect.ValueOf(full).Elem())
		given := *full
		setDefaults(full)
		same(t, *full, given)
	})
	t.Run("defaults change no field that is given alone", func(t *testing.T) {
		for i := range reflect.TypeFor[C]().NumField() {
			one := new(C)
			field := reflect.ValueOf(one).Elem().Field(i)
			fill(field)
			given := field.Interface()
			setDefaults(one)
			if field.Kind() != reflect.Struct { // of which other fields may have defaults
				same(t, field.Interface(), given)
			}
		}
	})
	t.Run("defaults are the same twice", func(t *testing.T) {
		once := required
		setDefaults(&once)
		twice := once
		setDefaults(&twice)
		same(t, twice, once)
	})
	t.Run("answers have a class", func(t *testing.T) {
		for _, a := range kind.Answers {
			if a.Says == "" || !slices.ContainsFunc(meanings(), func(m string) bool { return strings.HasPrefix(a.Means, m) }) {
				t.Errorf("answer %q means %q, which begins with none of %q", a.Says, a.Means, meanings())
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
			t.Fatalf("Build gave %v and the error %v", sink, err)
		}
		given := required
		setDefaults(&given)
		setDefaults(&read)
		same(t, read, given)
	})
}

// meanings are what that of an answer begins with.
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

// fill gives a value, or all fields of a struct, one that is not zero. Interfaces and
// functions stay nil: no default is one.
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

// overlay sets what is not zero in from, as decoding a file does.
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
