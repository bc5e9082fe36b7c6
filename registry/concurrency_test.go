package registry_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
)

type fact[T any] struct{ Value T }

func TestRegisterIsConcurrentWithEncodeAndDecode(t *testing.T) {
	t.Parallel()
	types := shop(t)
	registrations := []func(*registry.Registry) error{
		as[fact[int]]("fact.int", registry.Aliases("int")),
		as[fact[string]]("fact.string", registry.Aliases("string")),
		as[fact[bool]]("fact.bool", registry.Aliases("bool")),
		as[fact[byte]]("fact.byte", registry.Aliases("byte")),
		as[fact[float64]]("fact.float", registry.Aliases("float")),
		as[fact[[]int]]("fact.ints", registry.Aliases("ints")),
	}
	const perType = 4 // callers that register the same type; only one succeeds
	begin := make(chan struct{})
	done := make(chan struct{})
	registered := make(chan error, perType*len(registrations))
	var registering, using sync.WaitGroup
	for _, register := range registrations {
		for range perType {
			registering.Go(func() {
				<-begin
				registered <- register(types)
			})
		}
	}
	for range 4 {
		using.Go(func() {
			<-begin
			for {
				e, err := types.Encode(&orderPlaced{OrderID: "o-1", CustomerID: "c-7"})
				if err != nil || e.Key != "c-7" {
					t.Errorf("encode: %v %v", e, err)
					return
				}
				if got, err := registry.Decode[orderPlaced](types, e); err != nil || got.OrderID != "o-1" {
					t.Errorf("decode: %v %v", got, err)
					return
				}
				for _, info := range types.Types() { // a listed type has all its names
					for _, name := range append(info.Aliases, info.Name) {
						if _, known := types.Lookup(name); !known {
							t.Errorf("%s is listed but %s is unknown", info.Name, name)
							return
						}
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	close(begin)
	registering.Wait()
	close(done)
	using.Wait()
	close(registered)

	won := 0
	for err := range registered {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, registry.ErrDuplicateName)
		require.ErrorIs(t, err, registry.ErrDuplicateType)
	}
	require.Equal(t, len(registrations), won)
	require.Len(t, types.Types(), 2+len(registrations))
}

func TestConcurrentRegistrationsAllSucceed(t *testing.T) {
	t.Parallel()
	registrations := map[string]func(*registry.Registry, string, ...registry.TypeOption) error{
		"a": registry.Register[fact[int]],
		"b": registry.Register[fact[string]],
		"c": registry.Register[fact[bool]],
		"d": registry.Register[fact[byte]],
	}
	// With many names, a registration takes long enough to overlap with others.
	var many []string
	for i := range 2000 {
		many = append(many, "many."+strconv.Itoa(i))
	}
	for range 20 {
		types := registry.New()
		require.NoError(t, registry.Register[orderPlaced](types, "order.placed", registry.Aliases(many...)))
		begin := make(chan struct{})
		var registering sync.WaitGroup
		for name, register := range registrations {
			registering.Go(func() {
				<-begin
				if err := register(types, name); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		registering.Wait()
		require.Len(t, types.Types(), 1+len(registrations))
	}
}
