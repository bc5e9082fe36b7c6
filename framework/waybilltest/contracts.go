package waybilltest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

// Contracts fails the test if the registered types break the contracts in a folder, which is committed: the
// JSON Schema of each version, as waybill types export writes them. Each break is one sentence. compat is what
// a change within a version must keep; the default is [contract.Forward].
//
// If nothing breaks, Contracts writes each file that is missing or has changed, and fails, so that you review
// and commit it. With a break it writes nothing.
func Contracts(t testing.TB, types *registry.Registry, folder string, compat ...contract.Compatibility) {
	t.Helper()
	keep := contract.Forward
	if len(compat) > 0 {
		keep = compat[0]
	}
	require.True(t, keep.Valid(), "compat is %q: use contract.Forward, Backward, Full or None", keep)
	next, err := contract.FromTypes(types)
	require.NoError(t, err)
	published, err := contract.ReadFolder(folder)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, contract.ErrNoContracts) {
		require.NoError(t, err)
		breaks := contract.Compare(published, next, keep)
		for _, b := range breaks {
			t.Error(b.Text)
		}
		if len(breaks) > 0 {
			return
		}
	}
	written, err := next.Write(folder)
	require.NoError(t, err)
	for _, name := range written {
		t.Errorf("%s is new or has changed, and breaks nothing: review and commit it", filepath.Join(folder, name))
	}
}
