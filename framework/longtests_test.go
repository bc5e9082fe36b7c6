package framework_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// `make test` runs with -short. Only `make test-long` runs what tests then leave out.
func TestMakeRunsWhatShortLeavesOut(t *testing.T) {
	t.Parallel()
	watchTree(t)
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	patterns := regexp.MustCompile(`(?m)^LONG_TESTS := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	require.NotNil(t, patterns)
	target := regexp.MustCompile(`(?m)^test-long:.*\n(?:\t.*\n)+`).Find(makefile)
	require.NotNil(t, target)
	packages := strings.Fields(string(target))

	var names []string
	for folder, tests := range longTests(t, "..") {
		require.Contains(t, packages, "./"+folder, "make test-long leaves out the package of %s", tests)
		names = append(names, tests...)
	}
	require.NotEmpty(t, names)
	one := strings.Fields(strings.NewReplacer("$$", "$", "\\\n", " ").Replace(string(patterns[1])))
	for _, name := range names {
		require.True(t, slices.ContainsFunc(one, func(p string) bool { return regexp.MustCompile(p).MatchString(name) }),
			"%s calls testing.Short, but LONG_TESTS in the Makefile does not match it", name)
	}
	for _, p := range one {
		require.True(t, slices.ContainsFunc(names, regexp.MustCompile(p).MatchString), "%s in LONG_TESTS matches no test that calls testing.Short", p)
	}
}

// longTests returns the tests that call testing.Short, directly or through functions of their package, by
// folder.
func longTests(t *testing.T, root string) map[string][]string {
	t.Helper()
	calls := make(map[string]map[string][]string) // folder, function, names that it calls
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && strings.HasPrefix(name, ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			require.NotContains(t, string(text), "testing.Short()", "%s is not searched here: call it in a _test.go file", path)
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if calls[folder] == nil {
			calls[folder] = make(map[string][]string)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				calls[folder][f.Name.Name] = append(calls[folder][f.Name.Name], called(f)...)
			}
		}
		return nil
	}))
	long := make(map[string][]string)
	for folder, functions := range calls {
		asks := map[string]bool{"testing.Short": true}
		for before := 0; len(asks) > before; {
			before = len(asks)
			for name, callees := range functions {
				if slices.ContainsFunc(callees, func(callee string) bool { return asks[callee] }) {
					asks[name] = true
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(asks)) {
			if strings.HasPrefix(name, "Test") && name != "TestMain" {
				long[folder] = append(long[folder], name)
			}
		}
	}
	return long
}

// called returns the names of the functions that a function calls, and testing.Short.
func called(f *ast.FuncDecl) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			names = append(names, fun.Name)
		case *ast.SelectorExpr: // only the method's name counts
			if x, ok := fun.X.(*ast.Ident); ok && x.Name == "testing" {
				names = append(names, "testing."+fun.Sel.Name)
			} else {
				names = append(names, fun.Sel.Name)
			}
		}
		return true
	})
	return names
}
