package email

import (
	"cmp"
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

// templateEnding tells templates from other files, which are shown in mails or
// attached to them.
const templateEnding = ".tmpl"

// The templates in a type's folder.
const (
	toFile          = "to.tmpl"
	ccFile          = "cc.tmpl"
	bccFile         = "bcc.tmpl"
	replyToFile     = "reply-to.tmpl"
	localeFile      = "locale.tmpl"
	unsubscribeFile = "list-unsubscribe.tmpl"
	attachmentsFile = "attachments.tmpl"
	subjectFile     = "subject.tmpl"
	textFile        = "text.tmpl"
	htmlFile        = "html.tmpl"
)

var (
	typeFiles = []string{
		toFile, ccFile, bccFile, replyToFile, localeFile, unsubscribeFile, attachmentsFile, subjectFile, textFile, htmlFile,
	}
	bodyFiles = []string{textFile, htmlFile}
	// localizedFiles are those that there can be one of for each locale.
	localizedFiles = []string{subjectFile, textFile, htmlFile}
)

// The templates at the root; they too can be localized.
const (
	textLayoutFile = "layout.text.tmpl"
	htmlLayoutFile = "layout.html.tmpl"
)

var layoutFiles = []string{textLayoutFile, htmlLayoutFile}

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

// folder is what a type has, by the names of the files.
type folder struct {
	templates map[string]executor
	files     map[string]*file
}

// hasBody says whether the folder has a body in a locale.
func (f folder) hasBody(locale string) bool {
	return slices.ContainsFunc(bodyFiles, func(file string) bool { return f.templates[localized(file, locale)] != nil })
}

// templates is all parsed templates. It never changes, so renders may run in
// parallel.
type templates struct {
	origin  string // where they came from, for people
	locale  string // of the templates without one in their names
	folders map[string]folder
}

// letter is what the templates made of one envelope.
type letter struct {
	to, cc, bcc, replyTo []*mail.Address
	subject              string
	text, html           string // "" where there is no such part
	bodyLocale           string // in the names of the templates of text and html
	locale               string // for people: bodyLocale, or what templates without one are in
	unsubscribe          []string
	images               []*file  // that html shows
	unknownImages        []string // that html shows and that are not there
	attachments          []*file
}

// parseTemplates reads all templates below root and reports all mistakes at
// once.
func parseTemplates(root fs.FS, origin, locale string) (*templates, error) {
	p := newParser(root)
	p.read(".")
	p.checkLayouts()
	set := &templates{origin: origin, locale: locale, folders: make(map[string]folder)}
	for name := range p.files {
		set.folders[name] = folder{files: p.files[name]}
	}
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		set.folders[name] = folder{templates: p.parseFolder(name), files: p.files[name]}
	}
	if len(p.mistakes) == 0 && len(p.sources) == 0 {
		p.mistake("there are none; add a folder for each type, such as order.placed/%s", toFile)
	}
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		p.checkFolder(set, name)
	}
	if len(p.mistakes) == 0 {
		return set, nil
	}
	for i, m := range p.mistakes {
		p.mistakes[i] = fmt.Errorf("%w: %s: %w", ErrTemplates, origin, m)
	}
	return nil, errors.Join(p.mistakes...)
}

// types lists the types that have templates of their own.
func (t *templates) types() []string {
	var names []string
	for name, f := range t.folders {
		if name != defaultFolder && len(f.templates) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// missing names the files that a type would need for a whole mail.
func (t *templates) missing(typeName string) []string {
	var files []string
	for _, file := range []string{toFile, subjectFile} {
		if t.find(typeName, file) == nil {
			files = append(files, path.Join(typeName, file))
		}
	}
	if !t.bodyFolder(typeName).hasBody("") {
		files = append(files, path.Join(typeName, textFile)+" or "+htmlFile)
	}
	return files
}

// find returns a type's template for a file, or the default one, in the first of
// the locales that has it, or else without one.
func (t *templates) find(typeName, name string, locales ...string) executor {
	return look(t, typeName, name, locales, func(f folder) map[string]executor { return f.templates })
}

// findFile is find for what is no template.
func (t *templates) findFile(typeName, name string, locales ...string) *file {
	return look(t, typeName, name, locales, func(f folder) map[string]*file { return f.files })
}

func look[T any](t *templates, typeName, name string, locales []string, in func(folder) map[string]T) (found T) {
	for _, f := range []folder{t.folders[typeName], t.folders[defaultFolder]} {
		for _, locale := range locales {
			if found, ok := in(f)[localized(name, locale)]; ok {
				return found
			}
		}
		if found, ok := in(f)[name]; ok {
			return found
		}
	}
	return found
}

// bodyFolder returns the folder that has the mail's text and html: the type's
// own if it has either, so that one mail never says two different things.
func (t *templates) bodyFolder(typeName string) folder {
	if own := t.folders[typeName]; own.hasBody("") {
		return own
	}
	return t.folders[defaultFolder]
}

// render makes the letter for a type. locale is used in place of what the
// type's own template for it gives, unless it is "". Errors wrap the sentinel of
// what is wrong, such as ErrRender, and name the file. A letter without a
// recipient is none.
func (t *templates) render(typeName string, data *Data, locale string) (*letter, error) {
	if missing := t.missing(typeName); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s is missing in %s", ErrNoTemplate, strings.Join(missing, ", "), t.origin)
	}
	wanted, err := t.locales(typeName, data, locale)
	if err != nil {
		return nil, err
	}
	l := &letter{bodyLocale: wanted[slices.IndexFunc(wanted, t.bodyFolder(typeName).hasBody)]} // the last one, "", has one
	l.locale = cmp.Or(l.bodyLocale, t.locale)
	data.Locale = l.locale
	if err := t.renderHeader(l, typeName, data, wanted); err != nil {
		return nil, err
	}
	if err := t.renderBody(l, typeName, data, wanted); err != nil {
		return nil, err
	}
	return l, t.renderAttachments(l, typeName, data, wanted)
}

// locales returns in whose templates to look.
func (t *templates) locales(typeName string, data *Data, locale string) ([]string, error) {
	if locale == "" {
		given, err := execute(t.find(typeName, localeFile), data)
		if err != nil {
			return nil, err
		}
		locale = given
	}
	list, err := locales(locale, t.locale)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(typeName, localeFile), err)
	}
	return list, nil
}

func (t *templates) renderHeader(l *letter, typeName string, data *Data, wanted []string) error {
	for _, field := range []struct {
		file string
		into *[]*mail.Address
	}{{toFile, &l.to}, {ccFile, &l.cc}, {bccFile, &l.bcc}, {replyToFile, &l.replyTo}} {
		list, err := t.renderAddresses(typeName, field.file, data)
		if err != nil {
			return err
		}
		*field.into = list
	}
	subject, err := execute(t.find(typeName, subjectFile, wanted...), data)
	if err != nil {
		return err
	}
	l.subject = collapse(subject)
	if len(l.subject) == 0 || len(l.subject) > maxSubject {
		return fmt.Errorf("%w: %s gave %d bytes, 1 to %d are possible", ErrSubject, path.Join(typeName, subjectFile), len(l.subject), maxSubject)
	}
	unsubscribe, err := execute(t.find(typeName, unsubscribeFile), data)
	if err != nil {
		return err
	}
	if l.unsubscribe, err = parseUnsubscribe(unsubscribe); err != nil {
		return fmt.Errorf("%s: %w", path.Join(typeName, unsubscribeFile), err)
	}
	return nil
}

func (t *templates) renderBody(l *letter, typeName string, data *Data, wanted []string) (err error) {
	body := t.bodyFolder(typeName)
	if l.text, err = execute(body.templates[localized(textFile, l.bodyLocale)], data); err != nil {
		return err
	}
	if l.html, err = execute(body.templates[localized(htmlFile, l.bodyLocale)], data); err != nil {
		return err
	}
	for _, name := range imagesIn(l.html) {
		found := t.findFile(typeName, name, wanted...)
		if found == nil {
			l.unknownImages = append(l.unknownImages, name)
			continue
		}
		l.images = append(l.images, &file{name: name, mediaType: found.mediaType, data: found.data})
	}
	return nil
}

func (t *templates) renderAttachments(l *letter, typeName string, data *Data, wanted []string) error {
	text, err := execute(t.find(typeName, attachmentsFile), data)
	if err != nil {
		return err
	}
	l.attachments, err = parseAttachments(text, func(name string) *file { return t.findFile(typeName, name, wanted...) })
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join(typeName, attachmentsFile), err)
	}
	return nil
}

func (t *templates) renderAddresses(typeName, file string, data *Data) ([]*mail.Address, error) {
	text, err := execute(t.find(typeName, file), data)
	if err != nil {
		return nil, err
	}
	list, err := parseRendered(text)
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
