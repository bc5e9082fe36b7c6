package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
)

// sources has the comments of Go types, from the module around the current folder.
type sources struct {
	root, module string                       // "" if there is no module
	packages     map[string]map[string]string // comments by the type's or the field's name
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)

func newSources() *sources {
	s := &sources{packages: make(map[string]map[string]string)}
	folder, err := os.Getwd()
	for err == nil {
		text, missing := os.ReadFile(filepath.Join(folder, "go.mod"))
		if found := moduleLine.FindSubmatch(text); missing == nil && found != nil {
			s.root, s.module = folder, string(found[1])
			return s
		}
		if filepath.Dir(folder) == folder {
			break
		}
		folder = filepath.Dir(folder)
	}
	return s
}

// comment returns the comment of a type, or of one of its fields; "" if its source is not there.
func (s *sources) comment(t reflect.Type, field string) string {
	path := t.PkgPath()
	if path == "main" {
		if info, ok := debug.ReadBuildInfo(); ok {
			path = info.Path
		}
	}
	folder, external := strings.CutSuffix(path, "_test")
	rest, inside := strings.CutPrefix(folder, s.module)
	if s.module == "" || !inside || rest != "" && rest[0] != '/' {
		return ""
	}
	comments, read := s.packages[path]
	if !read {
		comments = commentsIn(filepath.Join(s.root, filepath.FromSlash(rest)), external)
		s.packages[path] = comments
	}
	name, _, _ := strings.Cut(t.Name(), "[") // without type arguments
	if field != "" {
		name += "." + field
	}
	return comments[name]
}

// commentsIn returns the comments of the types in a folder, or of those of its external tests, and of their
// fields. Files that cannot be read have none.
func commentsIn(folder string, external bool) map[string]string {
	comments := make(map[string]string)
	files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || strings.HasSuffix(file.Name.Name, "_test") != external {
			continue
		}
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				t := spec.(*ast.TypeSpec)
				comments[t.Name.Name] = oneParagraph(t.Doc, general.Doc)
				structure, ok := t.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range structure.Fields.List {
					for _, n := range f.Names {
						comments[t.Name.Name+"."+n.Name] = oneParagraph(f.Doc, f.Comment)
					}
				}
			}
		}
	}
	return comments
}

// oneParagraph returns the first paragraph of the first comment that there is, on one line.
func oneParagraph(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if first, _, _ := strings.Cut(strings.TrimSpace(c.Text()), "\n\n"); first != "" {
			return strings.Join(strings.Fields(first), " ")
		}
	}
	return ""
}
