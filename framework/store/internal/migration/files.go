package migration

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"text/template"

	"github.com/pressly/goose/v3"
)

// file is one migration.
type file struct {
	name    string
	version int64
}

// files returns the migrations in the order of their versions; at least one.
func (s Set) files() ([]file, error) {
	names, err := fs.Glob(s.Files, "*.sql")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, goose.ErrNoMigrations
	}
	files := make([]file, len(names))
	for i, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		files[i] = file{name, version}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.version, b.version) })
	return files, nil
}

// rendered is a file system whose *.sql files are templates over data.
type rendered struct {
	fs.FS
	data any
}

// Open opens the rendered text. Its Stat still describes the template.
func (r rendered) Open(name string) (fs.File, error) {
	if path.Ext(name) != ".sql" {
		return r.FS.Open(name)
	}
	text, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r.data); err != nil {
		return nil, err
	}
	f, err := r.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &renderedFile{File: f, text: &b}, nil
}

type renderedFile struct {
	fs.File
	text *bytes.Buffer
}

func (f *renderedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
