package postgrestest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// fetchedVersion is the version that is fetched if the machine has no binaries.
const fetchedVersion = embeddedpostgres.V18

// needed are the programs that a folder of server binaries must contain. Folders of client packages
// have only some of them.
var needed = []string{"initdb", "postgres"}

// installed are folders with server binaries that are usually not in PATH: of Debian, Red Hat,
// Alpine, Homebrew on both processors, Postgres.app, and a build from source.
var installed = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin",
}

const advice = `Any of these mends it:
  - set ` + Variable + ` to a server on which databases may be created, such as
    postgres://me@localhost:5432/postgres?sslmode=disable
  - install a server: apt-get install postgresql, dnf install postgresql-server,
    apk add postgresql, brew install postgresql@17
  - let this machine reach repo1.maven.org once, from where binaries are fetched`

// finder searches for a folder of server binaries.
type finder struct {
	path    string   // in the form of $PATH
	folders []string // patterns; of the folders that match one, the newest version is used
	fetch   func(context.Context) (folder string, err error)
}

func thisMachine() finder {
	return finder{path: os.Getenv("PATH"), folders: installed, fetch: fetch}
}

// find returns the first folder with binaries. Its error wraps ErrNoServer and explains what to do.
func (f finder) find(ctx context.Context) (string, error) {
	for _, folder := range filepath.SplitList(f.path) {
		if complete, ok := completeFolder(folder); ok {
			return complete, nil
		}
	}
	for _, pattern := range f.folders {
		for _, folder := range newestFirst(pattern) {
			if complete, ok := completeFolder(folder); ok {
				return complete, nil
			}
		}
	}
	folder, err := f.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not set, or a private server was asked for; no folder of PATH nor any of %s has %s; and fetching them failed: %w\n%s",
			ErrNoServer, Variable, strings.Join(f.folders, ", "), strings.Join(needed, ", "), err, advice)
	}
	return folder, nil
}

// completeFolder reports whether a folder has all needed programs. It follows links, since the
// programs search for their libraries beside themselves.
func completeFolder(folder string) (string, bool) {
	initdb, err := filepath.EvalSymlinks(filepath.Join(folder, "initdb"))
	if err != nil {
		return "", false
	}
	folder = filepath.Dir(initdb)
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return "", false
		}
	}
	return folder, true
}

var versionInPath = regexp.MustCompile(`\d+(\.\d+)?`)

// newestFirst expands the pattern and sorts by the last number in the path, so that 9.6 is older
// than 15.
func newestFirst(pattern string) []string {
	folders, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	version := func(folder string) float64 {
		numbers := versionInPath.FindAllString(folder, -1)
		if len(numbers) == 0 {
			return 0
		}
		number, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64)
		return number
	}
	slices.SortStableFunc(folders, func(a, b string) int {
		switch va, vb := version(a), version(b); {
		case va > vb:
			return -1
		case va < vb:
			return 1
		}
		return 0
	})
	return folders
}

// fetch downloads binaries into a cache for later processes, and returns their folder. If ctx ends,
// the download continues, since the library takes no context.
func fetch(ctx context.Context) (string, error) {
	cache, err := testserver.Cache("waybill-postgrestest")
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, "postgresql-"+string(fetchedVersion))
	if folder, ok := completeFolder(filepath.Join(final, "bin")); ok {
		return folder, nil
	}
	done := make(chan error, 1)
	go func() { done <- testserver.Fill(final, fetchInto) }()
	select {
	case err := <-done:
		if err != nil {
			return "", err
		}
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	folder, ok := completeFolder(filepath.Join(final, "bin"))
	if !ok {
		return "", fmt.Errorf("the fetched binaries in %s are not complete", final)
	}
	return folder, nil
}

// fetchInto downloads and unpacks into a folder, and returns that of the binaries.
func fetchInto(work string) (binaries string, err error) {
	port, err := testserver.FreePort()
	if err != nil {
		return "", err
	}
	binaries = filepath.Join(work, "binaries")
	// The library cannot download without starting the server. For root the start fails, but only after
	// the binaries are in place, so it is enough that they exist.
	database := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchedVersion).
		Port(uint32(port)).
		CachePath(work).
		BinariesPath(binaries).
		RuntimePath(filepath.Join(work, "runtime")).
		Logger(nil))
	startErr := database.Start()
	http.DefaultClient.CloseIdleConnections() // the library leaves connections, which a leak checker would report
	if startErr == nil {
		if err := database.Stop(); err != nil {
			return "", err
		}
	}
	if _, ok := completeFolder(filepath.Join(binaries, "bin")); !ok {
		return "", startErr
	}
	return binaries, nil
}
