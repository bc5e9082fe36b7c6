package postgrestest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheErrorForMissingBinariesSaysHowToGetThem(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("unable to connect")
	empty := finder{
		folders: []string{filepath.Join(t.TempDir(), "*", "bin")},
		fetch:   func(context.Context) (string, error) { return "", unreachable },
	}
	_, err := empty.find(t.Context())
	require.ErrorIs(t, err, ErrNoServer)
	require.ErrorIs(t, err, unreachable)
	require.ErrorContains(t, err, "set WAYBILL_TEST_POSTGRES to a server")
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.ErrorContains(t, err, "initdb, postgres")
	require.ErrorContains(t, err, empty.folders[0])
}

func TestBinariesAreLookedForInOrder(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	inPath := install(t, root, "path/bin")
	clientOnly := install(t, root, "client/bin", "psql", "initdb")
	install(t, root, "versions/9.6/bin")
	fifteen := install(t, root, "versions/15/bin")
	install(t, root, "versions/16/bin", "psql")
	fetched := install(t, root, "fetched/bin")
	links := filepath.Join(root, "links")
	require.NoError(t, os.Mkdir(links, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(inPath, "initdb"), filepath.Join(links, "initdb")))

	list := func(folders ...string) (path string) {
		for _, folder := range folders {
			path += folder + string(os.PathListSeparator)
		}
		return path
	}
	versions := []string{filepath.Join(root, "nowhere", "*"), filepath.Join(root, "versions", "*", "bin")}
	for name, test := range map[string]struct {
		path    string
		folders []string
		want    string
	}{
		"PATH comes first":                   {list(clientOnly, inPath), versions, inPath},
		"links lead to the folder":           {list(links), versions, inPath},
		"the newest complete installation":   {list(clientOnly), versions, fifteen},
		"fetched where nothing is installed": {"", versions[:1], fetched},
	} {
		t.Run(name, func(t *testing.T) {
			f := finder{test.path, test.folders, func(context.Context) (string, error) { return fetched, nil }}
			got, err := f.find(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

// install makes a folder with the named programs, by default all that are needed.
func install(t *testing.T, root, folder string, programs ...string) string {
	t.Helper()
	folder = filepath.Join(root, filepath.FromSlash(folder))
	require.NoError(t, os.MkdirAll(folder, 0o755))
	if len(programs) == 0 {
		programs = needed
	}
	for _, name := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o755))
	}
	return folder
}
