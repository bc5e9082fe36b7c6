package framework_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test -count 1 -run ^TestThePublicAPIIsAsRecorded$ . -update

var update = flag.Bool("update", false, "record the public API as it is")

// recorded has everything that the public packages export, so that a review shows what changes for
// programs that import them.
const recorded = "../.ci/api.txt"

func TestThePublicAPIIsAsRecorded(t *testing.T) {
	var api bytes.Buffer
	for _, folder := range publicPackages(t) {
		printAPI(t, &api, folder)
	}
	if *update {
		require.NoError(t, os.WriteFile(recorded, api.Bytes(), 0o644))
	}
	want, err := os.ReadFile(recorded)
	require.NoError(t, err)
	require.Equal(t, string(want), api.String(), "the public API has changed: record it with make generate, and write in docs/CHANGELOG.md what changes for users")
}

// publicPackages returns the folders of the packages that other modules can import, relative to the
// module's.
func publicPackages(t *testing.T) (folders []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(folder string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case !e.IsDir():
			return nil
		case slices.Contains([]string{"internal", "testdata", "examples", "benchmarks", "node_modules"}, name), folder != ".." && strings.HasPrefix(name, "."):
			return fs.SkipDir
		}
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if len(found) > 0 {
			folders = append(folders, folder)
		}
		return err
	}))
	return folders
}

// printAPI prints what a package exports on Linux, sorted by names and without comments.
func printAPI(t *testing.T, out *bytes.Buffer, folder string) {
	t.Helper()
	linux := build.Default
	linux.GOOS, linux.GOARCH = "linux", "amd64"
	found, err := linux.ImportDir(folder, 0)
	if _, none := err.(*build.NoGoError); none || found.IsCommand() { //nolint:errorlint // the error is not wrapped
		return
	}
	require.NoError(t, err)
	positions := token.NewFileSet()
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(positions, filepath.Join(folder, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	imported := path.Join("github.com/waybill-go/waybill", strings.TrimPrefix(filepath.ToSlash(folder), ".."))
	p, err := doc.NewFromFiles(positions, files, imported)
	require.NoError(t, err)
	show := func(node ast.Node) {
		ast.Inspect(node, onlyWhatCounts)
		require.NoError(t, (&printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}).Fprint(out, token.NewFileSet(), node))
		fmt.Fprintln(out)
	}
	values := func(of []*doc.Value) {
		for _, v := range of {
			show(v.Decl)
		}
	}
	functions := func(of []*doc.Func) {
		for _, f := range of {
			show(f.Decl)
		}
	}
	fmt.Fprintf(out, "\npackage %s // %s\n", found.Name, imported)
	values(p.Consts)
	values(p.Vars)
	functions(p.Funcs)
	for _, typ := range p.Types {
		fmt.Fprintln(out)
		show(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		functions(typ.Funcs)
		functions(typ.Methods)
	}
}

// onlyWhatCounts removes what does not matter to code that uses a declaration: comments, the tags of
// fields, and the texts of variables, which are errors.
func onlyWhatCounts(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.GenDecl:
		n.Doc = nil
		if n.Tok == token.VAR {
			ast.Inspect(n, withoutText)
		}
	case *ast.StructType:
		n.Incomplete = false
	case *ast.InterfaceType:
		n.Incomplete = false
	case *ast.FuncDecl:
		n.Doc = nil
	case *ast.TypeSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.ValueSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.Field:
		n.Doc, n.Comment, n.Tag = nil, nil, nil
	}
	return true
}

func withoutText(node ast.Node) bool {
	if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		literal.Value = `"…"`
	}
	return true
}
