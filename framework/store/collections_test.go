package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestTheIDOfACollectionIsThatOfItsNumberAndGroup(t *testing.T) {
	t.Parallel()
	one := store.CollectionRef{Group: "ann", Number: "n"}
	require.Equal(t, "199c9915-1fab-5e15-8bd4-33e4b86e1c4d", one.ID(), "receivers know it")
	require.NotEqual(t, one.ID(), store.CollectionRef{Group: "bob", Number: "n"}.ID())
	require.Empty(t, store.CollectionRef{Group: "ann"}.ID())
	require.Empty(t, store.CollectionRef{Number: "n"}.ID(), "a hidden group")
}
