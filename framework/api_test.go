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

	"github.com/stretchr/testify/assert"
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

// printAPI prints what a package exports, sorted by names and without comments.
func printAPI(t *testing.T, out *bytes.Buffer, folder string) {
	t.Helper()
	p := documented(t, folder)
	if p == nil {
		return
	}
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
	fmt.Fprintf(out, "\npackage %s // %s\n", p.Name, p.ImportPath)
	values(p.Consts)
	values(p.Vars)
	functions(p.Funcs)
	for _, typ := range p.Types {
		fmt.Fprintln(out)
		aliased := hidden(t, p, typ)
		show(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		functions(typ.Funcs)
		functions(typ.Methods)
		if aliased != nil {
			show(aliased.Decl)
			functions(aliased.Methods)
		}
	}
}

// documented returns the exported declarations of a package as it is on Linux, or nil for a command and
// a folder without packages other than tests.
func documented(t *testing.T, folder string) *doc.Package {
	t.Helper()
	linux := build.Default
	linux.GOOS, linux.GOARCH = "linux", "amd64"
	found, err := linux.ImportDir(folder, 0)
	if _, none := err.(*build.NoGoError); none || found.IsCommand() || len(found.GoFiles) == 0 { //nolint:errorlint // the error is not wrapped
		return nil
	}
	require.NoError(t, err)
	positions := token.NewFileSet()
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(positions, filepath.Join(folder, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(positions, files, path.Join(module, strings.TrimPrefix(filepath.ToSlash(folder), "..")))
	require.NoError(t, err)
	return p
}

// hidden returns the type of an internal package for which a type is an alias, or nil. Tools that show
// documentation do not show its fields and methods, so the comment of the alias must name them.
func hidden(t *testing.T, in *doc.Package, alias *doc.Type) *doc.Type {
	t.Helper()
	spec := alias.Decl.Specs[0].(*ast.TypeSpec)
	name, is := spec.Type.(*ast.SelectorExpr)
	if !is || !spec.Assign.IsValid() {
		return nil
	}
	from := slices.IndexFunc(in.Imports, func(path string) bool {
		return strings.HasPrefix(path, module+"/") && strings.Contains(path, "/internal/") && strings.HasSuffix(path, "/"+name.X.(*ast.Ident).Name)
	})
	if from < 0 {
		return nil
	}
	types := documented(t, filepath.FromSlash(".."+strings.TrimPrefix(in.Imports[from], module))).Types
	at := slices.IndexFunc(types, func(typ *doc.Type) bool { return typ.Name == name.Sel.Name })
	require.GreaterOrEqual(t, at, 0, "%s.%s", in.Imports[from], name.Sel.Name)
	ast.Inspect(types[at].Decl, func(node ast.Node) bool {
		if member, is := node.(*ast.Field); is {
			for _, name := range member.Names {
				if name.IsExported() {
					assert.Contains(t, alias.Doc+spec.Comment.Text(), name.Name, "the comment of %s.%s must name each field and method", in.Name, alias.Name)
				}
			}
		}
		return true
	})
	return types[at]
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
