package sinks_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

type settings struct{ Word string }

func (s *settings) SetDefaults() {
	if s.Word == "" {
		s.Word = "default"
	}
}

func (s *settings) Validate() error {
	if s.Word == "wrong" {
		return errors.New("word: is wrong")
	}
	return nil
}

// taken is a sink that keeps the arguments of its constructor.
type taken struct {
	in sinks.Instance
	settings
}

func (taken) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

func kindOf(name string) sinks.Kind {
	return sinks.NewKind(name, "", func(in sinks.Instance, s settings) (sinks.Sink, error) { return taken{in, s}, nil })
}

func TestASetBuildsSinksOfItsKinds(t *testing.T) {
	set, err := sinks.NewSet(kindOf("b"), kindOf("a"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, set.Names())
	given := sinks.Instance{Name: "events", Types: registry.New(), HTTPClient: http.DefaultClient}
	build := func(kind, word string) (sinks.Sink, error) {
		return set.Build(kind, given, func(config any) error {
			require.Equal(t, "default", config.(*settings).Word, "the defaults are set before the user's values")
			config.(*settings).Word = word
			return nil
		})
	}
	sink, err := build("a", "given")
	require.NoError(t, err)
	require.Equal(t, "given", sink.(taken).Word)
	in := sink.(taken).in
	require.NotNil(t, in.Logger, "a constructor always gets a logger")
	in.Logger = nil
	require.Equal(t, given, in)

	_, err = build("a", "wrong")
	require.ErrorContains(t, err, "word: is wrong")
	_, err = build("c", "given")
	require.ErrorIs(t, err, sinks.ErrUnknownKind)
	require.ErrorContains(t, err, "the known kinds are a, b")
}

func TestKindsWithTheSameNameAreRefused(t *testing.T) {
	_, err := sinks.NewSet(kindOf("a"), kindOf("b"), kindOf("a"))
	require.ErrorIs(t, err, sinks.ErrDuplicateKind)
	require.ErrorContains(t, err, `"a"`)
}

func TestAnInvalidKindIsRefused(t *testing.T) {
	for want, kind := range map[string]sinks.Kind{
		"has no name":            kindOf(""),
		`"a" has no constructor`: sinks.NewKind[settings]("a", "", nil),
		`the configuration of "a" is *sinks_test.settings`: sinks.NewKind("a", "", func(sinks.Instance, *settings) (sinks.Sink, error) { return nil, nil }),
		`the configuration of "a" is int`:                  sinks.NewKind("a", "", func(sinks.Instance, int) (sinks.Sink, error) { return nil, nil }),
	} {
		_, err := sinks.NewSet(kind)
		require.ErrorIs(t, err, sinks.ErrKind)
		require.ErrorContains(t, err, want)
	}
}

func TestAConstructorThatPanicsIsAnError(t *testing.T) {
	kind := sinks.NewKind("a", "", func(sinks.Instance, settings) (sinks.Sink, error) { panic("oh") })
	_, err := kind.Build(sinks.Instance{}, func(any) error { return nil })
	require.EqualError(t, err, "the constructor of the kind a panicked: oh")
}

func TestANilSetIsEmpty(t *testing.T) {
	var set *sinks.Set
	require.Empty(t, set.Names())
	_, err := set.Build("a", sinks.Instance{}, nil)
	require.ErrorIs(t, err, sinks.ErrUnknownKind)
}

func TestTheKindGoBuildsTheProgramsSinkOrAnAbsentOne(t *testing.T) {
	kind := sinks.GoKind(map[string]func(sinks.Instance) (sinks.Sink, error){
		"billing": func(in sinks.Instance) (sinks.Sink, error) { return taken{in: in}, nil },
	})
	nothing := func(any) error { return nil }
	sink, err := kind.Build(sinks.Instance{Name: "billing"}, nothing)
	require.NoError(t, err)
	require.Equal(t, "billing", sink.(taken).in.Name)

	sink, err = kind.Build(sinks.Instance{Name: "shipping"}, nothing)
	require.NoError(t, err, "a program can look at a configuration of another")
	require.Equal(t, sinks.Absent("shipping"), sink)
	_, err = sink.Deliver(t.Context(), nil)
	require.ErrorIs(t, err, sinks.ErrAbsent)
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class, "no delivery becomes dead because of it")
}

func TestAConstructorThatFailsReturnsNoSink(t *testing.T) {
	kind := sinks.NewKind("a", "", func(sinks.Instance, settings) (sinks.Sink, error) {
		var none *taken
		return none, errors.New("no")
	})
	sink, err := kind.Build(sinks.Instance{}, func(any) error { return nil })
	require.EqualError(t, err, "no")
	require.Nil(t, sink)
	require.True(t, sink == nil, "it is not a nil pointer in an interface either")
}
