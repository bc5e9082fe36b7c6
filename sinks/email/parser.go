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

// parser collects files and mistakes while it reads the templates.
type parser struct {
	root     fs.FS
	sources  map[string]map[string]string // folder -> template -> content
	files    map[string]map[string]*file  // folder -> other file
	layouts  map[string]string            // file -> content
	mistakes []error
	about    string // the beginning of new mistakes
}

func newParser(root fs.FS) *parser {
	return &parser{
		root:    root,
		sources: make(map[string]map[string]string),
		files:   make(map[string]map[string]*file),
		layouts: make(map[string]string),
	}
}

func (p *parser) mistake(format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf(p.about+format, args...))
}

// mistakeOnce adds a mistake that several files can cause.
func (p *parser) mistakeOnce(format string, args ...any) {
	err := fmt.Errorf(p.about+format, args...)
	if !slices.ContainsFunc(p.mistakes, func(m error) bool { return m.Error() == err.Error() }) {
		p.mistakes = append(p.mistakes, err)
	}
}

// read collects the files in dir and below. It follows symbolic links inside of the folder, which a
// mounted Kubernetes ConfigMap uses, and ignores hidden files.
func (p *parser) read(dir string) {
	entries, err := fs.ReadDir(p.root, dir)
	if err != nil {
		var failed *fs.PathError
		if dir == "." && errors.As(err, &failed) {
			err = failed.Err // without the path, which is "."
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
		default:
			p.readFile(dir, entry.Name())
		}
	}
}

func (p *parser) readFile(dir, name string) {
	full := path.Join(dir, name)
	atRoot, isTemplate := dir == ".", strings.HasSuffix(name, templateEnding)
	switch {
	case atRoot && !isTemplate:
		return // for example a README
	case isTemplate && !p.isKnown(full, name, atRoot):
		return
	}
	content, err := fs.ReadFile(p.root, full)
	switch {
	case err != nil:
		p.mistakes = append(p.mistakes, err)
	case atRoot:
		p.layouts[name] = string(content)
	case isTemplate:
		if p.sources[dir] == nil {
			p.sources[dir] = make(map[string]string)
		}
		p.sources[dir][name] = string(content)
	default:
		if p.files[dir] == nil {
			p.files[dir] = make(map[string]*file)
		}
		p.files[dir][name] = &file{name: name, mediaType: mediaTypeOf(name), data: content}
	}
}

// isKnown reports whether a template has a valid name, and adds a mistake if not.
func (p *parser) isKnown(full, name string, atRoot bool) bool {
	known := typeFiles
	if atRoot {
		known = layoutFiles
	}
	unnumbered, version := splitVersion(name)
	plain, locale := splitLocale(unnumbered, known)
	switch {
	case version > 0 && (atRoot || path.Dir(full) == defaultFolder || path.Dir(full) == collectionFolder):
		p.mistake("%s: only the templates of a type can have a version", full)
		return false
	case plain == "" && atRoot:
		p.mistake("%s is not in the folder of a type; next to the folders, only %s and %s are allowed", full, textLayoutFile, htmlLayoutFile)
		return false
	case plain == "":
		p.mistake("%s is unknown; the templates of a type are %s", full, strings.Join(typeFiles, ", "))
		return false
	case locale == "":
		return true
	case !atRoot && !slices.Contains(localizedFiles, plain):
		p.mistake("%s: only the names of %s can have a locale", full, strings.Join(localizedFiles, ", "))
		return false
	}
	canonical, err := parseLocale(locale)
	switch {
	case err != nil:
		p.mistake("%s: %w", full, err)
	case canonical != locale:
		p.mistake("%s: write the locale as %s", full, canonical)
	default:
		return true
	}
	return false
}

// checkLayouts checks the layouts. It removes a layout with a mistake, so that the mistakes in the
// other templates are also found.
func (p *parser) checkLayouts() {
	for _, file := range slices.Sorted(maps.Keys(p.layouts)) {
		layout, err := newText(file).Parse(p.layouts[file]) // both kinds of templates have the same syntax
		switch {
		case err != nil:
			p.mistakes = append(p.mistakes, err)
		case !calls(layout.Tree)[contentBlock]:
			p.mistake("%s has no {{template %q .}}, so no mail would have its content", file, contentBlock)
		default:
			continue
		}
		delete(p.layouts, file)
	}
}

// layoutFor returns the layout of a locale, of one of its parents, or the one without a locale; ""
// if there is none.
func (p *parser) layoutFor(file, locale string) string {
	list, _ := locales(locale, "") // isKnown has checked it
	for _, l := range list {
		if name := localized(file, l); p.layouts[name] != "" {
			return name
		}
	}
	return ""
}

// foldersOf parses a folder's templates, and returns the folder for each range of versions.
func (p *parser) foldersOf(name string) []folder {
	parsed := p.parseFolder(name)
	versions := versionsIn(parsed)
	if len(versions) == 0 {
		return []folder{{name: name, templates: parsed, files: p.files[name]}}
	}
	folders := make([]folder, len(versions))
	for i, version := range versions {
		folders[i] = folder{name: name, from: version, templates: ofVersion(parsed, version), files: p.files[name]}
	}
	return folders
}

// parseFolder parses a folder's templates. The result also has those with mistakes, so that they
// are not reported as missing.
func (p *parser) parseFolder(name string) map[string]executor {
	parsed := make(map[string]executor, len(p.sources[name]))
	for _, file := range slices.Sorted(maps.Keys(p.sources[name])) {
		var t executor
		var err error
		source, full := p.sources[name][file], path.Join(name, file)
		unnumbered, _ := splitVersion(file)
		switch plain, locale := splitLocale(unnumbered, typeFiles); plain {
		case htmlFile:
			t, err = p.parseHTML(p.layoutFor(htmlLayoutFile, locale), full, source)
		case textFile:
			t, err = p.parseText(p.layoutFor(textLayoutFile, locale), full, source)
		case toFile, ccFile, bccFile, replyToFile:
			t, err = p.parseAddressTemplate(full, source)
		default:
			t, err = p.parseText("", full, source)
		}
		if err != nil {
			p.mistakes = append(p.mistakes, err)
		}
		parsed[file] = t
	}
	return parsed
}

// functions are the template functions, besides those of text/template.
var functions = texttemplate.FuncMap{
	"address": address, addressesFunction: addresses, fromDataFunction: fromData,
	"attachment": attachment, "int": toInt, "float": toFloat,
}

func newText(name string) *texttemplate.Template {
	return texttemplate.New(name).Option("missingkey=error").Funcs(functions)
}

func newHTML(name string) *htmltemplate.Template {
	return htmltemplate.New(name).Option("missingkey=error").Funcs(htmltemplate.FuncMap(functions))
}

// parseText parses a text template, inside a layout unless that is "". Templates have the names of
// their files, so that errors name the file.
func (p *parser) parseText(layout, name, source string) (*texttemplate.Template, error) {
	root := newText(name)
	if layout != "" {
		root = newText(layout)
		if _, err := root.Parse(p.layouts[layout]); err != nil {
			return root, err
		}
	}
	content, err := root.New(name).Parse(source)
	if err != nil {
		return root, err
	}
	if layout == "" {
		root = content
	} else if _, err := root.AddParseTree(contentBlock, content.Tree); err != nil {
		return root, err
	}
	// html/template finds calls of undefined templates when it escapes; text/template does
	// not.
	for _, t := range root.Templates() {
		for called := range calls(t.Tree) {
			if root.Lookup(called) == nil {
				return root, fmt.Errorf("%s calls a template %q that is not defined", name, called)
			}
		}
	}
	return root, nil
}

// parseAddressTemplate is parseText for a template of addresses. Each of its expressions must give
// one address; see parseRendered.
func (p *parser) parseAddressTemplate(name, source string) (executor, error) {
	root, err := p.parseText("", name, source)
	if err != nil {
		return root, err
	}
	for _, t := range root.Templates() {
		markData(t.Tree)
	}
	return root, nil
}

// parseHTML is parseText for html/template. It also executes the template once, because
// html/template escapes at the first execution, which can fail.
func (p *parser) parseHTML(layout, name, source string) (executor, error) {
	root := newHTML(name)
	if layout != "" {
		root = newHTML(layout)
		if _, err := root.Parse(p.layouts[layout]); err != nil {
			return root, err
		}
	}
	content, err := root.New(name).Parse(source)
	if err != nil {
		return root, err
	}
	if layout == "" {
		root = content
	} else if _, err := root.AddParseTree(contentBlock, content.Tree.Copy()); err != nil {
		return root, err
	}
	var escape *htmltemplate.Error
	if err := root.Execute(io.Discard, new(Data)); errors.As(err, &escape) {
		return root, err
	}
	return root, nil // other errors come from the missing payload
}
