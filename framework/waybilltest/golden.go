package waybilltest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// goldenName matches names such as order.placed.v2.golden.
var goldenName = regexp.MustCompile(`^(.+)\.v(\d+)\.golden$`)

// Golden fails the test if payloads that were published earlier no longer decode. It keeps
// examples of them, since the log and parked deliveries may still hold such payloads.
//
// The folder has a file for each version of each type, such as order.placed.v2.golden. For a
// sample whose version has no file, Golden writes one and fails, so that you review and commit
// it. An existing file must decode to the sample. Every type needs a sample. Golden decodes
// every file, including those of aliases and of older versions, and checks it against the contract of its
// version, if the type has one; fields that were added since may be missing.
func Golden(t testing.TB, types *registry.Registry, folder string, samples ...any) {
	t.Helper()
	sampled := make(map[string]bool)
	for _, sample := range samples {
		name, err := types.Name(sample)
		require.NoError(t, err)
		sampled[name] = true
		golden(t, types, folder, sample)
	}
	for _, known := range types.Types() {
		if !sampled[known.Name] {
			t.Errorf("%s has no sample: give Golden a value of %s", known.Name, known.GoType)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.golden"))
	require.NoError(t, err)
	contracts, _ := contract.FromTypes(types) // of the types that have one
	for _, file := range files {
		parts := goldenName.FindStringSubmatch(filepath.Base(file))
		if parts == nil {
			t.Errorf("%s: the name is not a type and a version, such as order.placed.v2.golden", file)
			continue
		}
		version, err := strconv.Atoi(parts[2])
		require.NoError(t, err)
		payload, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, err := types.Decode(&notification.Envelope{ID: "golden", Type: parts[1], Version: version, Payload: payload}); err != nil {
			t.Errorf("%s no longer decodes: %v; stored notifications of this version would be lost: register an upcaster, an alias, or the type again", file, err)
			continue
		}
		if c, ok := contracts.Of(parts[1], version); ok {
			if err := c.ValidateStored(payload); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// golden compares a sample with its file, or writes the file if there is none.
func golden(t testing.TB, types *registry.Registry, folder string, sample any) {
	t.Helper()
	e, err := types.Encode(sample)
	require.NoError(t, err)
	file := filepath.Join(folder, fmt.Sprintf("%s.v%d.golden", e.Type, e.Version))
	payload, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(file, e.Payload, 0o644))
		t.Errorf("%s is new: review and commit it", file)
		return
	}
	require.NoError(t, err)
	want, err := types.Decode(e)
	require.NoError(t, err)
	stored := *e
	stored.Payload = payload
	got, err := types.Decode(&stored)
	if err != nil {
		return // Golden reports it with all files
	}
	require.Equal(t, want, got, "%s has changed its meaning, but is still version %d: make it version %d, with an upcaster", file, e.Version, e.Version+1)
}
