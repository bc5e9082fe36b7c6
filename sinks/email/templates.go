package email

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/mail"
	"path"
	"slices"
	"strings"
)

// The files of a type's folder.
const (
	toFile      = "to.tmpl"
	ccFile      = "cc.tmpl"
	bccFile     = "bcc.tmpl"
	replyToFile = "reply-to.tmpl"
	subjectFile = "subject.tmpl"
	textFile    = "text.tmpl"
	htmlFile    = "html.tmpl"
)

var typeFiles = []string{toFile, ccFile, bccFile, replyToFile, subjectFile, textFile, htmlFile}

// The files at the root.
const (
	textLayoutFile = "layout.text.tmpl"
	htmlLayoutFile = "layout.html.tmpl"
)

// defaultFolder has what a type's own folder lacks.
const defaultFolder = "default"

// contentBlock is how a layout names what it surrounds.
const contentBlock = "content"

// maxSubject keeps the header's line below the 998 bytes of RFC 5322, section
// 2.1.1, where the subject has no space to fold at.
const maxSubject = 900

// executor is what text/template and html/template have in common.
type executor interface {
	Execute(w io.Writer, data any) error
}

// folder is the parsed templates of one type, by file name.
type folder map[string]executor

// templates is all parsed templates. It never changes, so renders may run in
// parallel.
type templates struct {
	origin  string // where they came from, for people
	folders map[string]folder
}

// letter is what the templates made of one envelope.
type letter struct {
	to, cc, bcc, replyTo []*mail.Address
	subject              string
	text, html           string // "" where there is no such part
}

// parseTemplates reads all templates below root and reports all mistakes at
// once.
func parseTemplates(root fs.FS, origin string) (*templates, error) {
	p := &parser{root: root, sources: make(map[string]map[string]string), layouts: make(map[string]string)}
	p.read(".")
	p.parseLayouts()
	set := &templates{origin: origin, folders: make(map[string]folder)}
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		set.folders[name] = p.parseFolder(name, p.sources[name])
	}
	if len(p.mistakes) == 0 && len(set.folders) == 0 {
		p.mistakes = append(p.mistakes, fmt.Errorf("there are none; add a folder for each type, such as order.placed/%s", toFile))
	}
	for _, name := range slices.Sorted(maps.Keys(set.folders)) {
		if name == defaultFolder {
			continue // a default may be partial
		}
		for _, missing := range set.missing(name) {
			p.mistakes = append(p.mistakes, fmt.Errorf("%s is missing", missing))
		}
	}
	if len(p.mistakes) == 0 {
		return set, nil
	}
	for i, m := range p.mistakes {
		p.mistakes[i] = fmt.Errorf("%w: %s: %w", ErrTemplates, origin, m)
	}
	return nil, errors.Join(p.mistakes...)
}

// missing names the files that a type would need for a whole mail.
func (t *templates) missing(typeName string) []string {
	var files []string
	for _, file := range []string{toFile, subjectFile} {
		if t.find(typeName, file) == nil {
			files = append(files, path.Join(typeName, file))
		}
	}
	if body := t.body(typeName); body[textFile] == nil && body[htmlFile] == nil {
		files = append(files, path.Join(typeName, textFile)+" or "+htmlFile)
	}
	return files
}

// find returns a type's template for a file, or the default one.
func (t *templates) find(typeName, file string) executor {
	if own := t.folders[typeName][file]; own != nil {
		return own
	}
	return t.folders[defaultFolder][file]
}

// body returns the folder that has the mail's text and html: the type's own if
// it has either, so that one mail never says two different things.
func (t *templates) body(typeName string) folder {
	own := t.folders[typeName]
	if own[textFile] != nil || own[htmlFile] != nil {
		return own
	}
	return t.folders[defaultFolder]
}

// render makes the letter for a type. Errors wrap ErrNoTemplate, ErrRender,
// ErrAddress or ErrSubject and name the file.
func (t *templates) render(typeName string, data *Data) (*letter, error) {
	if missing := t.missing(typeName); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s is missing in %s", ErrNoTemplate, strings.Join(missing, ", "), t.origin)
	}
	l := new(letter)
	for _, field := range []struct {
		file string
		into *[]*mail.Address
	}{{toFile, &l.to}, {ccFile, &l.cc}, {bccFile, &l.bcc}, {replyToFile, &l.replyTo}} {
		list, err := t.renderAddresses(typeName, field.file, data)
		if err != nil {
			return nil, err
		}
		*field.into = list
	}
	if len(l.to) == 0 {
		return nil, fmt.Errorf("%w: %s gave no recipient", ErrAddress, path.Join(typeName, toFile))
	}
	subject, err := execute(t.find(typeName, subjectFile), data)
	if err != nil {
		return nil, err
	}
	l.subject = collapse(subject)
	if len(l.subject) == 0 || len(l.subject) > maxSubject {
		return nil, fmt.Errorf("%w: %s gave %d bytes, 1 to %d are possible", ErrSubject, path.Join(typeName, subjectFile), len(l.subject), maxSubject)
	}
	body := t.body(typeName)
	if l.text, err = execute(body[textFile], data); err != nil {
		return nil, err
	}
	if l.html, err = execute(body[htmlFile], data); err != nil {
		return nil, err
	}
	return l, nil
}

func (t *templates) renderAddresses(typeName, file string, data *Data) ([]*mail.Address, error) {
	text, err := execute(t.find(typeName, file), data)
	if err != nil {
		return nil, err
	}
	list, err := parseAddresses(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(typeName, file), err)
	}
	return list, nil
}

// execute runs a template; none gives "".
func execute(t executor, data *Data) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("%w: %w", ErrRender, err)
	}
	return b.String(), nil
}
