package waybilltest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// goldenName is order.placed.v2.golden.
var goldenName = regexp.MustCompile(`^(.+)\.v(\d+)\.golden$`)

// Golden keeps payloads as they were published, and fails the test if one does not decode
// any more: a log, and what is parked, may hold them for as long as they are kept.
//
// The folder has a file for each version of each type, such as order.placed.v2.golden. A
// sample whose version has none writes it and fails, so that the file is looked at and
// committed; one that has must decode to the sample, as must an older version if its
// upcasters make the same of it. Every type needs a sample, and every file is decoded,
// those of older names (aliases) too.
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
	for _, file := range files {
		parts := goldenName.FindStringSubmatch(filepath.Base(file))
		if parts == nil {
			t.Errorf("%s: the name is not that of a type and a version, such as order.placed.v2.golden", file)
			continue
		}
		version, err := strconv.Atoi(parts[2])
		require.NoError(t, err)
		payload, err := os.ReadFile(file)
		require.NoError(t, err)
		if _, err := types.Decode(&notification.Envelope{ID: "golden", Type: parts[1], Version: version, Payload: payload}); err != nil {
			t.Errorf("%s decodes no more: %v; what was published so is lost: register an upcaster, an alias, or the type again", file, err)
		}
	}
}

// golden compares a sample with its file, which it writes if there is none.
func golden(t testing.TB, types *registry.Registry, folder string, sample any) {
	t.Helper()
	e, err := types.Encode(sample)
	require.NoError(t, err)
	file := filepath.Join(folder, fmt.Sprintf("%s.v%d.golden", e.Type, e.Version))
	payload, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.WriteFile(file, e.Payload, 0o644))
		t.Errorf("%s is new: look at it, and commit it", file)
		return
	}
	require.NoError(t, err)
	want, err := types.Decode(e)
	require.NoError(t, err)
	stored := *e
	stored.Payload = payload
	got, err := types.Decode(&stored)
	if err != nil {
		return // is reported with all files
	}
	require.Equal(t, want, got, "%s is version %d and has changed its meaning: make it version %d, with an upcaster", file, e.Version, e.Version+1)
}
