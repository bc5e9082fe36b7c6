package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

type street struct {
	Name string `json:"name"`
	No   int
}

type Contact struct {
	Email string `json:"email,omitempty"`
	Phone *string
}

type customer struct {
	Contact
	Inner    Contact `json:"inner"`
	ID       string
	Home     *street   `json:"home"`
	Others   []*street `json:"others/all"`
	ByName   map[string]street
	Secret   string `json:"-"`
	hidden   string //nolint:unused // that it is refused
	Verbatim json.RawMessage
}

func byID(c customer) string { return c.ID }

func TestPrivateFieldsAreFoundAsEncodingJSONWritesThem(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"Email": "/email", "Phone": "/Phone", "Inner.Email": "/inner/email", "Home": "/home", "Home.Name": "/home/name", "Others.Name": "/others~1all/*/name",
		"Others": "/others~1all", "ByName.No": "/ByName/*/No", "/any/place": "/any/place", "Verbatim": "/Verbatim", "Inner": "/inner",
	} {
		r := registry.New()
		require.NoError(t, registry.Register[customer](r, "c", registry.Private(byID, field)))
		info, _ := r.Lookup("c")
		require.Len(t, info.Private, 1, field)
		require.Equal(t, want, info.Private[0].String(), field)
	}
	r := registry.New()
	require.NoError(t, registry.Register[*customer](r, "c", registry.Private(byID, "Email"), registry.Private(func(c *customer) string { return "home of " + c.ID }, "Home", "Others")))
	values, err := r.PrivateOf(customer{ID: "ada"})
	require.NoError(t, err)
	require.Len(t, values, 2)
	require.Equal(t, "ada", values[0].Subject)
	require.Equal(t, "home of ada", values[1].Subject)
	require.Equal(t, []registry.Pointer{{"home"}, {"others/all"}}, values[1].At)
	_, err = r.PrivateOf((*customer)(nil))
	require.ErrorIs(t, err, registry.ErrNil)
}

func TestMistakesInPrivateFieldsAreFoundAtRegistration(t *testing.T) {
	t.Parallel()
	binary := registry.Serializer(binaryJSON{})
	for want, option := range map[string][]registry.TypeOption{
		"no exported field Nothing":   {registry.Private(byID, "Nothing")},
		"no exported field hidden":    {registry.Private(byID, "hidden")},
		"is not in the payload":       {registry.Private(byID, "Secret")},
		"is embedded: name its field": {registry.Private(byID, "Contact")},
		"has no fields":               {registry.Private(byID, "ID.Name")},
		"writes its JSON itself":      {registry.Private(byID, "Verbatim.Name")},
		"overlaps":                    {registry.Private(byID, "Home", "Home.Name")},
		"overlaps another":            {registry.Private(byID, "Email"), registry.Private(byID)},
		"no JSON pointer":             {registry.Private(byID, "/a~2")},
		"it must take":                {registry.Private(func(string) string { return "" }, "Email")},
		"is nil":                      {registry.Private[customer](nil, "Email")},
		"only the whole":              {registry.Private(byID, "Email"), binary},
	} {
		err := registry.Register[customer](registry.New(), "c", option...)
		require.ErrorIs(t, err, registry.ErrOption, want)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, registry.Register[customer](registry.New(), "c", registry.Private(byID), binary))
}

// binaryJSON is a serializer whose payloads count as binary.
type binaryJSON struct{ serializer.JSON }

func (binaryJSON) ContentType() string { return "application/octet-stream" }

func TestPointersHaveTheFormOfRFC6901(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]registry.Pointer{"": nil, "/": {""}, "/a/b": {"a", "b"}, "/a~1b/m~0n": {"a/b", "m~n"}, "/~01": {"~1"}, "/*/x": {"*", "x"}} {
		p, err := registry.ParsePointer(text)
		require.NoError(t, err)
		require.Equal(t, want, p)
		require.Equal(t, text, p.String())
	}
	for _, text := range []string{"a", "a/b", "/~", "/~2"} {
		_, err := registry.ParsePointer(text)
		require.Error(t, err, text)
	}
}
