package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

func TestEachPatchFitsTheTree(t *testing.T) {
	t.Parallel()
	mutants, err := readAll(root, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(mutants), 60)
	for _, m := range mutants {
		planted, err := m.plant(t.Context(), root, t.TempDir(), true)
		require.NoError(t, err)
		before, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err)
		after, err := os.ReadFile(planted)
		require.NoError(t, err)
		require.NotEqual(t, string(before), string(after), m.name)
		require.NotContains(t, m.file, "_test.go", m.name)
	}
}

func TestTheSuiteOfEachMutantExists(t *testing.T) {
	t.Parallel()
	mutants, err := readAll(root, nil)
	require.NoError(t, err)
	for _, m := range mutants {
		files, err := filepath.Glob(filepath.Join(root, m.suite.pkg, "*_test.go"))
		require.NoError(t, err)
		var tests []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				tests = append(tests, found[1])
			}
		}
		top, _, _ := strings.Cut(m.suite.tests, "/") // what is behind a slash is about a part of a test
		pattern, err := regexp.Compile(top)
		require.NoError(t, err, m.name)
		require.True(t, slices.ContainsFunc(tests, pattern.MatchString), "%s: Package and Run match no test", m.name)
	}
}

const (
	product = "package clock\n\n// Hours are those of a day.\nconst Hours = 24\n\n// Noon is in the middle.\nconst Noon = Hours / 2\n"
	tests   = `package clock

import (
	"os"
	"testing"
	"time"
)

func TestNoonIsAtTwelve(t *testing.T) {
	if Noon != 12 {
		t.Fatal(Noon)
	}
}

func TestNothing(*testing.T) {}

func TestLater(t *testing.T) { t.Skip("not here") }

func TestInAnotherGoroutine(t *testing.T) {
	if Noon != 12 {
		go panic("noon")
		select {}
	}
}

func TestInTime(t *testing.T) {
	if Noon != 12 {
		time.Sleep(time.Hour)
	}
}

func TestWithVariable(t *testing.T) {
	if os.Getenv("NOON") == "strict" && Noon != 12 {
		t.Fatal(Noon)
	}
}
`
)

// newModule returns the folder of a module with one package.
func newModule(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	write(t, folder, "go.mod", "module example.org/clock\n\ngo 1.24\n")
	write(t, folder, "clock/clock.go", product)
	write(t, folder, "clock/clock_test.go", tests)
	return folder
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// plantAs adds a patch that makes noon another hour.
func plantAs(t *testing.T, folder, name, noon, head string) {
	t.Helper()
	write(t, folder, "framework/internal/mutants/patches/"+name+".patch", "Defect: noon is at another hour\nPackage: ./clock\n"+head+
		"diff --git a/clock/clock.go b/clock/clock.go\n--- a/clock/clock.go\n+++ b/clock/clock.go\n@@ -4,4 +4,4 @@\n const Hours = 24\n \n // Noon is in the middle.\n-const Noon = Hours / 2\n+const Noon = "+noon+"\n")
}

func optionsOf(folder string) options {
	return options{root: folder, atOnce: 2, limit: time.Minute}
}

// hunted runs the mutants of a module and returns what was printed.
func hunted(t *testing.T, o options, names ...string) (printed string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = run(t.Context(), o, names, &out)
	t.Log(out.String())
	return out.String(), err
}

func TestOnlyAFailedTestKills(t *testing.T) {
	t.Parallel()
	folder := newModule(t)
	plantAs(t, folder, "by-a-test", "11", "")
	plantAs(t, folder, "by-a-goroutine", "11", "Run: Goroutine\n")
	plantAs(t, folder, "with-a-variable", "11", "Run: Variable\nEnv: NOON=strict\n")
	plantAs(t, folder, "without-the-variable", "11", "Run: Variable\n")
	plantAs(t, folder, "unnoticed", "11", "Run: Nothing\n")
	plantAs(t, folder, "skipped", "11", "Run: Later\n")
	plantAs(t, folder, "not-compiled", "Dusk", "")
	printed, err := hunted(t, optionsOf(folder))
	require.ErrorContains(t, err, "not killed: ")
	for name, outcome := range map[string]string{
		"by-a-test": killed, "by-a-goroutine": killed, "with-a-variable": killed,
		"without-the-variable": survived, "unnoticed": survived, "skipped": skipped, "not-compiled": failed,
	} {
		require.Regexp(t, `s  `+outcome+` +`+name+` `, printed)
		require.Equal(t, outcome != killed, regexp.MustCompile(`[ ,]`+name+`(,|$)`).MatchString(err.Error()), name)
	}
	require.Contains(t, printed, "by TestNoonIsAtTwelve")
	require.Contains(t, printed, "undefined: Dusk", "it says why")
	require.Contains(t, printed, "3 of 7: killed")
	text, err := os.ReadFile(filepath.Join(folder, "clock/clock.go"))
	require.NoError(t, err)
	require.Equal(t, product, string(text), "the tree is as it was")

	plantAs(t, folder, "by-the-limit", "11", "Run: InTime\n")
	o := optionsOf(folder)
	o.limit = time.Second
	printed, err = hunted(t, o, "by-the-limit")
	require.NoError(t, err)
	require.Contains(t, printed, "a panic during TestInTime")
}

func TestASuiteThatFailsAnywayKillsNothing(t *testing.T) {
	t.Parallel()
	folder := newModule(t)
	plantAs(t, folder, "noon", "11", "")
	o := optionsOf(folder)
	o.check = true
	_, err := hunted(t, o)
	require.NoError(t, err)
	write(t, folder, "clock/clock.go", strings.Replace(product, "24", "26", 1))
	_, err = hunted(t, o)
	require.ErrorContains(t, err, "not "+survived+": without a mutant: ./clock")
}

func TestMutantsAreChosenByNameAndAtRandom(t *testing.T) {
	t.Parallel()
	folder := newModule(t)
	for _, name := range []string{"noon-a", "noon-b", "noon-c", "noon"} {
		plantAs(t, folder, name, "11", "Run: Noon\n")
	}
	printed, err := hunted(t, optionsOf(folder), "noon", "noon-[ab]")
	require.NoError(t, err)
	require.Contains(t, printed, "3 of 3: killed")
	require.NotContains(t, printed, "noon-c")
	_, err = hunted(t, optionsOf(folder), "dusk")
	require.ErrorContains(t, err, "has no mutant dusk")

	o := optionsOf(folder)
	o.of = 2
	printed, err = hunted(t, o)
	require.NoError(t, err)
	require.Regexp(t, `2 of 4 mutants, drawn with -seed \d+\n`, printed)
	mutants, err := readAll(folder, nil)
	require.NoError(t, err)
	require.Equal(t, draw(mutants, 2, 7), draw(mutants, 2, 7))
	drawn := make(map[string]bool)
	for seed := range uint64(100) {
		drawn[draw(mutants, 1, seed)[0].name] = true
	}
	require.Len(t, drawn, 4)
}

func TestAPatchIsRenewedWhenWhatIsAroundItChanges(t *testing.T) {
	t.Parallel()
	folder := newModule(t)
	plantAs(t, folder, "noon", "11", "Run: Noon\n")
	write(t, folder, "clock/clock.go", strings.Replace(product, "Hours = 24", "Hours = 12 + 12", 1))
	printed, err := hunted(t, optionsOf(folder))
	require.Error(t, err)
	require.Contains(t, printed, "noon does not fit any more, -renew may repair it")

	o := optionsOf(folder)
	o.renew = true
	printed, err = hunted(t, o)
	require.NoError(t, err)
	require.Contains(t, printed, "noon is written again")
	_, err = hunted(t, optionsOf(folder))
	require.NoError(t, err)
	printed, err = hunted(t, o)
	require.NoError(t, err)
	require.Empty(t, printed, "it is as it should be")

	write(t, folder, "clock/clock.go", strings.Replace(product, "Hours / 2", "12", 1))
	_, err = hunted(t, o)
	require.ErrorContains(t, err, "plant it again")
}

func TestAPatchHasAHeadAndOnePlace(t *testing.T) {
	t.Parallel()
	const diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
	for text, complaint := range map[string]string{
		"":                                      "one place",
		"Defect: x\nPackage: .\n":               "one place",
		diff:                                    "must say Defect and Package",
		"Defect: x\n" + diff:                    "must say Defect and Package",
		"Defect: x\nTests: all\n" + diff:        `the line "Tests: all\n" of its head`,
		"Defect: x\nPackage: .\n" + diff + diff: "one place",
		"Defect: x\nPackage: .\n" + diff + "@@ -9 +9 @@\n-1\n+2\n": "one place",
	} {
		folder := t.TempDir()
		write(t, folder, "x.patch", text)
		_, err := read(filepath.Join(folder, "x.patch"))
		require.ErrorContains(t, err, complaint, text)
	}
	_, err := readAll(t.TempDir(), nil)
	require.ErrorContains(t, err, "has no mutant")
}

func TestAHuntEndsWithItsContext(t *testing.T) {
	t.Parallel()
	folder := newModule(t)
	plantAs(t, folder, "noon", "11", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run(ctx, optionsOf(folder), nil, new(bytes.Buffer)), context.Canceled)
}
