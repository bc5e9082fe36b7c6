package email

import (
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	texttemplate "text/template"
)

// parser gathers files and mistakes while the templates are read.
type parser struct {
	root       fs.FS
	sources    map[string]map[string]string // folder -> file -> content
	layouts    map[string]string            // file -> content
	textLayout *texttemplate.Template
	htmlLayout *htmltemplate.Template
	mistakes   []error
}

func (p *parser) mistake(format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf(format, args...))
}

// read gathers the template files in dir and below. It follows symbolic links,
// of which a mounted Kubernetes ConfigMap consists, and leaves hidden files
// alone.
func (p *parser) read(dir string) {
	entries, err := fs.ReadDir(p.root, dir)
	if err != nil {
		var failed *fs.PathError
		if dir == "." && errors.As(err, &failed) {
			err = failed.Err // its path would be "."
		}
		p.mistakes = append(p.mistakes, err)
		return
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		info, err := fs.Stat(p.root, name)
		switch {
		case err != nil:
			p.mistakes = append(p.mistakes, err)
		case info.IsDir():
			p.read(name)
		case strings.HasSuffix(name, ".tmpl"):
			p.readFile(dir, entry.Name())
		}
	}
}

func (p *parser) readFile(dir, file string) {
	name := path.Join(dir, file)
	atRoot := dir == "."
	switch {
	case atRoot && file != textLayoutFile && file != htmlLayoutFile:
		p.mistake("%s is in no type's folder; beside the folders there may be %s and %s only", name, textLayoutFile, htmlLayoutFile)
		return
	case !atRoot && !slices.Contains(typeFiles, file):
		p.mistake("%s is unknown; the files of a type are %s", name, strings.Join(typeFiles, ", "))
		return
	}
	content, err := fs.ReadFile(p.root, name)
	if err != nil {
		p.mistakes = append(p.mistakes, err)
		return
	}
	if atRoot {
		p.layouts[file] = string(content)
		return
	}
	if p.sources[dir] == nil {
		p.sources[dir] = make(map[string]string)
	}
	p.sources[dir][file] = string(content)
}

// parseLayouts parses the files at the root. A layout with a mistake is left
// out, so that the mistakes in what it surrounds are found as well.
func (p *parser) parseLayouts() {
	if source, ok := p.layouts[textLayoutFile]; ok {
		layout, err := newText(textLayoutFile).Parse(source)
		switch {
		case err != nil:
			p.mistakes = append(p.mistakes, err)
		case !calls(layout.Tree)[contentBlock]:
			p.mistake("%s has no {{template %q .}}, so no mail would have its content", textLayoutFile, contentBlock)
		default:
			p.textLayout = layout
		}
	}
	if source, ok := p.layouts[htmlLayoutFile]; ok {
		layout, err := newHTML(htmlLayoutFile).Parse(source)
		switch {
		case err != nil:
			p.mistakes = append(p.mistakes, err)
		case !calls(layout.Tree)[contentBlock]:
			p.mistake("%s has no {{template %q .}}, so no mail would have its content", htmlLayoutFile, contentBlock)
		default:
			p.htmlLayout = layout
		}
	}
}

// parseFolder parses a folder's files; those with mistakes stand in the result
// too, so that they are not also reported as missing.
func (p *parser) parseFolder(name string, sources map[string]string) folder {
	parsed := make(folder, len(sources))
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		var t executor
		var err error
		switch full := path.Join(name, file); file {
		case htmlFile:
			t, err = parseHTML(p.htmlLayout, full, sources[file])
		case textFile:
			t, err = parseText(p.textLayout, full, sources[file])
		default:
			t, err = parseText(nil, full, sources[file])
		}
		if err != nil {
			p.mistakes = append(p.mistakes, err)
		}
		parsed[file] = t
	}
	return parsed
}

// functions are what templates have beside those of text/template.
var functions = texttemplate.FuncMap{"address": address, "int": toInt, "float": toFloat}

func newText(name string) *texttemplate.Template {
	return texttemplate.New(name).Option("missingkey=error").Funcs(functions)
}

func newHTML(name string) *htmltemplate.Template {
	return htmltemplate.New(name).Option("missingkey=error").Funcs(htmltemplate.FuncMap(functions))
}

// parseText parses a text template, inside the layout where there is one.
// Templates keep the name of their file, so that errors lead there.
func parseText(layout *texttemplate.Template, name, source string) (executor, error) {
	root := newText(name)
	if layout != nil {
		clone, err := layout.Clone()
		if err != nil {
			return root, err
		}
		root = clone
	}
	content, err := root.New(name).Parse(source)
	if err != nil {
		return root, err
	}
	if layout == nil {
		root = content
	} else if _, err := root.AddParseTree(contentBlock, content.Tree); err != nil {
		return root, err
	}
	// html/template finds calls of templates that do not exist when it escapes;
	// here it has to be asked for.
	for _, t := range root.Templates() {
		for called := range calls(t.Tree) {
			if root.Lookup(called) == nil {
				return root, fmt.Errorf("%s calls a template %q that is not defined", name, called)
			}
		}
	}
	return root, nil
}

// parseHTML is parseText for html/template. It also escapes the template, which
// the package does with the first execution only, and which can fail.
func parseHTML(layout *htmltemplate.Template, name, source string) (executor, error) {
	root := newHTML(name)
	if layout != nil {
		clone, err := layout.Clone()
		if err != nil {
			return root, err
		}
		root = clone
	}
	content, err := root.New(name).Parse(source)
	if err != nil {
		return root, err
	}
	if layout == nil {
		root = content
	} else if _, err := root.AddParseTree(contentBlock, content.Tree.Copy()); err != nil {
		return root, err
	}
	var escape *htmltemplate.Error
	if err := root.Execute(io.Discard, new(Data)); errors.As(err, &escape) {
		return root, err
	}
	return root, nil // any other error is only that there is no payload yet
}
