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

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// templateEnding is the ending of templates. Other files are images and attachments.
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
	// localizedFiles are the templates that can exist for each locale.
	localizedFiles = []string{subjectFile, textFile, htmlFile}
)

// The templates at the root. They can also have a locale.
const (
	textLayoutFile = "layout.text.tmpl"
	htmlLayoutFile = "layout.html.tmpl"
)

var layoutFiles = []string{textLayoutFile, htmlLayoutFile}

// defaultFolder has the files that a type's folder lacks.
const defaultFolder = "default"

// contentBlock is the name of the content in a layout.
const contentBlock = "content"

// maxSubject is the largest subject in bytes. It keeps the header line below the 998 bytes of RFC
// 5322, section 2.1.1, even if the subject has no space at which to fold it.
const maxSubject = 900

// executor is a template of text/template or html/template.
type executor interface {
	Execute(w io.Writer, data any) error
}

// folder has the files of a type, by name.
type folder struct {
	name      string
	alone     bool // the default folder adds nothing
	from      int  // the first version whose payloads the templates read
	templates map[string]executor
	files     map[string]*file
}

// hasBody reports whether the folder has a text or html in a locale.
func (f folder) hasBody(locale string) bool {
	return slices.ContainsFunc(bodyFiles, func(file string) bool { return f.templates[localized(file, locale)] != nil })
}

// templates has all parsed templates. It is immutable and safe for concurrent use.
type templates struct {
	origin string // the folder, for errors
	locale string // the language of templates without a locale
	// folders has the folders by type. A type whose templates have versions in their names has
	// several, in ascending order.
	folders map[string][]folder
	// builtin has the folders of types that need none.
	builtin map[string]folder
}

// letter is the result of the templates for one envelope.
type letter struct {
	to, cc, bcc, replyTo []*mail.Address
	subject              string
	text, html           string // "" if there is no such part
	bodyLocale           string // the locale in the names of the text and html templates
	locale               string // bodyLocale, or the language of templates without a locale
	unsubscribe          []string
	images               []*file  // in the html
	unknownImages        []string // in the html, without a file
	attachments          []*file
}

// parseTemplates reads all templates below root. Its error joins all mistakes.
func parseTemplates(root fs.FS, origin, locale string) (*templates, error) {
	p := newParser(root)
	p.read(".")
	p.checkLayouts()
	set := &templates{origin: origin, locale: locale, folders: make(map[string][]folder)}
	for name := range p.files {
		set.folders[name] = []folder{{name: name, files: p.files[name]}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		set.folders[name] = p.foldersOf(name)
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

// types lists the types that have a folder with templates.
func (t *templates) types() []string {
	var names []string
	for name, folders := range t.folders {
		if name != defaultFolder && name != collectionFolder && len(folders[0].templates) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// folder returns the folder of a type for payloads of a version; one without files if there is none.
func (t *templates) folder(typeName string, version int) folder {
	own, is := t.builtin[typeName]
	if !is {
		own.name = typeName
	}
	for i, f := range t.folders[typeName] {
		if i == 0 || f.from <= version {
			own = f
		}
	}
	return own
}

// newest returns the newest version that the templates of a type say that they read; 0 if they do not
// say so.
func (t *templates) newest(typeName string) int {
	folders := t.folders[typeName]
	if len(folders) == 0 {
		return 0
	}
	return folders[len(folders)-1].from
}

// fallback is the folder with the files that a type's folder lacks.
func (t *templates) fallback() folder { return t.folder(defaultFolder, 0) }

// missing lists the files that a folder lacks for a complete mail.
func (t *templates) missing(own folder) []string {
	var files []string
	for _, file := range []string{toFile, subjectFile} {
		if t.find(own, file) == nil {
			files = append(files, path.Join(own.name, file))
		}
	}
	if !t.bodyFolder(own).hasBody("") {
		files = append(files, path.Join(own.name, textFile)+" or "+htmlFile)
	}
	return files
}

// find returns a folder's template, or the default one, in the first of the locales that has it, or
// else the one without a locale.
func (t *templates) find(own folder, name string, locales ...string) executor {
	return lookUp(t, own, name, locales, func(f folder) map[string]executor { return f.templates })
}

// findFile is find for other files.
func (t *templates) findFile(own folder, name string, locales ...string) *file {
	return lookUp(t, own, name, locales, func(f folder) map[string]*file { return f.files })
}

func lookUp[T any](t *templates, own folder, name string, locales []string, in func(folder) map[string]T) (found T) {
	folders := []folder{own, t.fallback()}
	if own.alone {
		folders = folders[:1]
	}
	for _, f := range folders {
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

// bodyFolder returns the folder with the mail's text and html: the type's folder if it has either
// of them, so that text and html of a mail never come from different folders.
func (t *templates) bodyFolder(own folder) folder {
	if own.hasBody("") {
		return own
	}
	return t.fallback()
}

// render makes the letter from a type's folder. A locale other than "" replaces the result of the type's
// locale template. Errors wrap a sentinel such as ErrRender, and name the file. The letter may have no
// recipient.
func (t *templates) render(own folder, data *Data, locale string) (*letter, error) {
	if missing := t.missing(own); len(missing) > 0 {
		of := fmt.Sprintf("version %d", data.Version)
		if own.name == collectionFolder {
			of = "a collection of several types"
		}
		return nil, fmt.Errorf("%w for %s: %s is missing in %s", ErrNoTemplate, of, strings.Join(missing, ", "), t.origin)
	}
	wanted, err := t.locales(own, data, locale)
	if err != nil {
		return nil, err
	}
	l := &letter{bodyLocale: wanted[slices.IndexFunc(wanted, t.bodyFolder(own).hasBody)]} // missing has checked that "", the last one, has a body
	l.locale = cmp.Or(l.bodyLocale, t.locale)
	data.setLocale(l.locale)
	if err := t.renderHeader(l, own, data, wanted); err != nil {
		return nil, err
	}
	if err := t.renderBody(l, own, data, wanted); err != nil {
		return nil, err
	}
	return l, t.renderAttachments(l, own, data, wanted)
}

// locales returns the locales in which to look for templates.
func (t *templates) locales(own folder, data *Data, locale string) ([]string, error) {
	if locale == "" {
		given, err := execute(t.find(own, localeFile), data.newest())
		if err != nil {
			return nil, err
		}
		locale = given
	}
	list, err := locales(locale, t.locale)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(own.name, localeFile), err)
	}
	return list, nil
}

func (t *templates) renderHeader(l *letter, own folder, data *Data, wanted []string) error {
	for _, field := range []struct {
		file string
		into *[]*mail.Address
	}{{toFile, &l.to}, {ccFile, &l.cc}, {bccFile, &l.bcc}, {replyToFile, &l.replyTo}} {
		list, err := t.renderAddresses(own, field.file, data)
		if err != nil {
			return err
		}
		*field.into = list
	}
	subject, err := execute(t.find(own, subjectFile, wanted...), data)
	if err != nil {
		return err
	}
	l.subject = line.Collapse(subject)
	if len(l.subject) == 0 || len(l.subject) > maxSubject {
		return fmt.Errorf("%w: the result of %s has %d bytes, want 1 to %d", ErrSubject, path.Join(own.name, subjectFile), len(l.subject), maxSubject)
	}
	unsubscribe, err := execute(t.find(own, unsubscribeFile), data.newest())
	if err != nil {
		return err
	}
	if l.unsubscribe, err = parseUnsubscribe(unsubscribe); err != nil {
		return fmt.Errorf("%s: %w", path.Join(own.name, unsubscribeFile), err)
	}
	return nil
}

func (t *templates) renderBody(l *letter, own folder, data *Data, wanted []string) (err error) {
	body := t.bodyFolder(own)
	if l.text, err = execute(body.templates[localized(textFile, l.bodyLocale)], data); err != nil {
		return err
	}
	if l.html, err = execute(body.templates[localized(htmlFile, l.bodyLocale)], data); err != nil {
		return err
	}
	for _, name := range imagesIn(l.html) {
		found := t.findFile(own, name, wanted...)
		if found == nil {
			l.unknownImages = append(l.unknownImages, name)
			continue
		}
		l.images = append(l.images, &file{name: name, mediaType: found.mediaType, data: found.data})
	}
	return nil
}

func (t *templates) renderAttachments(l *letter, own folder, data *Data, wanted []string) error {
	text, err := execute(t.find(own, attachmentsFile), data)
	if err != nil {
		return err
	}
	l.attachments, err = parseAttachments(text, func(name string) *file { return t.findFile(own, name, wanted...) })
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join(own.name, attachmentsFile), err)
	}
	return nil
}

// renderAddresses executes a template of addresses for each item. All must give the same addresses; the
// names are those of the first.
func (t *templates) renderAddresses(own folder, file string, data *Data) (common []*mail.Address, err error) {
	for i, item := range data.Items {
		text, err := execute(t.find(own, file), item)
		if err != nil {
			return nil, err
		}
		list, err := parseRendered(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path.Join(own.name, file), err)
		case i == 0:
			common = list
		case !slices.EqualFunc(list, common, func(a, b *mail.Address) bool { return a.Address == b.Address }):
			return nil, &sinks.DifferError{Setting: path.Join(own.name, file), One: data.Items[0].ID, Other: item.ID}
		}
	}
	return common, nil
}

// execute executes a template; nil gives "".
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
