package privacy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
)

func pointers(t testing.TB, texts ...string) (all []registry.Pointer) {
	for _, text := range texts {
		p, err := registry.ParsePointer(text)
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

func TestOnlyTheValuesAtThePointersAreReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string
		at         []string
	}{
		"a member":              {`{"a":"x","b":1}`, `{"a":#,"b":1}`, []string{"/a"}},
		"spaces stay":           {" { \"a\" : \"x\" ,\n\"b\": [1 , 2] } ", " { \"a\" : # ,\n\"b\": [1 , 2] } ", []string{"/a"}},
		"several":               {`{"a":{"b":"x","c":true},"d":-1.5e+3}`, `{"a":{"b":#,"c":#},"d":#}`, []string{"/a/b", "/a/c", "/d"}},
		"an object":             {`{"a":{"b":"}","c":[1,{}]},"d":1}`, `{"a":#,"d":1}`, []string{"/a"}},
		"each element":          {`{"l":[{"n":"x"},{"m":1},{"n":"y"}]}`, `{"l":[{"n":#},{"m":1},{"n":#}]}`, []string{"/l/*/n"}},
		"one element":           {`[1,2,3]`, `[1,#,3]`, []string{"/1"}},
		"each member":           {`{"a":1,"b":2}`, `{"a":#,"b":#}`, []string{"/*"}},
		"null is nothing":       {`{"a":null}`, `{"a":null}`, []string{"/a"}},
		"missing":               {`{"a":1}`, `{"a":1}`, []string{"/b", "/a/c"}},
		"escaped names":         {`{"a/b":1,"\u0063":2,"~":3}`, `{"a/b":#,"\u0063":#,"~":#}`, []string{"/a~1b", "/c", "/~0"}},
		"escaped quotes":        {`{"a":"x\\\"}","b":"\\"}`, `{"a":#,"b":#}`, []string{"/a", "/b"}},
		"the same name twice":   {`{"a":1,"a":2}`, `{"a":#,"a":#}`, []string{"/a"}},
		"the whole":             {` [1] `, ` # `, []string{""}},
		"empty":                 {`{"a":{},"b":[]}`, `{"a":{},"b":[]}`, []string{"/a/x", "/b/0"}},
		"an empty name":         {`{"":{"":1}}`, `{"":{"":#}}`, []string{"//"}},
		"a scalar of the whole": {`7`, `7`, []string{"/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := edit([]byte(c.text), pointers(t, c.at...), func(to, _ []byte) []byte { return append(to, '#') })
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

func TestWhatIsNotJSONIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a" 1}`, `{"a":1,}`, `{a:1}`, `[1`, `"x`, `{"a":1}}`, `{"a":1} x`, `{"\`, `{"a":"\`} {
		got, err := edit([]byte(text), pointers(t, "/b", "/0"), func(to, _ []byte) []byte { return append(to, '#') })
		require.ErrorIs(t, err, errJSON, "%s: %s", text, got)
	}
}

// FuzzEdit compares with encoding/json.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"x"]}}`), "/a/b/*")
	f.Add([]byte(`[null,{"\u0061":"\\"}]`), "/1/a")
	f.Fuzz(func(t *testing.T, text []byte, at string) {
		p, err := registry.ParsePointer(at)
		if err != nil {
			return
		}
		var values [][]byte
		got, err := edit(text, []registry.Pointer{p}, func(to, value []byte) []byte {
			values = append(values, bytes.Clone(value))
			return append(to, `"replaced"`...)
		})
		if !json.Valid(text) {
			return // only that it returns
		}
		require.NoError(t, err)
		require.True(t, json.Valid(got), "%s", got)
		for _, v := range values {
			require.True(t, json.Valid(v), "%s", v)
		}
		if !strings.Contains(at, "*") && len(values) == 0 {
			require.Equal(t, string(text), string(got))
		}
	})
}
