package contract_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/registry"
)

func TestAFolderMayHaveTheLineEndsOfWindows(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[tree](types, "tree"))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(folder+"/tree.v1.json", bytes.ReplaceAll(set.All()[0].Text, []byte("\n"), []byte("\r\n")), 0o600))
	written, err := set.Write(folder)
	require.NoError(t, err)
	require.Empty(t, written)
}

func TestAFolderKeepsContracts(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, errors.Join(
		registry.Register[everything](types, "everything/at:once", registry.Key(func(e everything) string { return e.ID })),
		registry.Register[tree](types, "tree")))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	folder := t.TempDir() + "/new/folder"
	written, err := set.Write(folder)
	require.NoError(t, err)
	require.Equal(t, []string{"everything%2Fat:once.v1.json", "tree.v1.json"}, written)
	written, err = set.Write(folder)
	require.NoError(t, err)
	require.Empty(t, written)

	read, err := contract.ReadFolder(folder)
	require.NoError(t, err)
	require.Empty(t, contract.Compare(read, set, contract.Full))
	for i, c := range read.All() {
		require.True(t, contract.Same(c, set.All()[i]))
		require.Equal(t, set.All()[i].About, c.About)
	}

	for name, text := range map[string]string{
		"broken.v1.json": "{", "list.v1.json": "[]", "other.v1.json": `{"x-waybill": {"type": "tree", "version": 1}}`,
	} {
		require.NoError(t, os.WriteFile(folder+"/"+name, []byte(text), 0o600))
	}
	_, err = contract.ReadFolder(folder)
	require.ErrorIs(t, err, contract.ErrSchema)
	require.ErrorContains(t, err, "broken.v1.json: ")
	require.ErrorContains(t, err, "list.v1.json: ")
	require.ErrorContains(t, err, "other.v1.json: no usable schema: it is the contract of tree v1, not of other v1: name another file, or correct x-waybill")
	_, err = contract.ReadFolder(t.TempDir())
	require.ErrorContains(t, err, "the folder has no contract, such as order.placed.v1.json: write them with waybill types export")
}

func TestALongNameOfATypeHasAShortFile(t *testing.T) {
	t.Parallel()
	names := []string{strings.Repeat("ü", 127), strings.Repeat("ü", 126) + "a", strings.Repeat("x", 255)}
	types := registry.New()
	require.NoError(t, errors.Join(registry.Register[Money](types, names[0]), registry.Register[tree](types, names[1]), registry.Register[base](types, names[2])))
	set, err := contract.FromTypes(types)
	require.NoError(t, err)
	folder := t.TempDir()
	written, err := set.Write(folder)
	require.NoError(t, err)
	require.Len(t, written, 3)
	read, err := contract.ReadFolder(folder)
	require.NoError(t, err)
	require.Empty(t, contract.Compare(read, set, contract.Full))
	for _, name := range names {
		require.True(t, read.Knows(name))
	}
}
