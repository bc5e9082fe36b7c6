package email

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// checkFolder checks that the files of a folder fit together.
func (p *parser) checkFolder(set *templates, name string) {
	folders := set.folders[name]
	for i, own := range folders {
		if own.from > 0 {
			p.about = fmt.Sprintf("version %d: ", own.from)
		}
		// The default folder may be incomplete, and an older version need not be read.
		if name != defaultFolder && i == len(folders)-1 {
			for _, missing := range set.missing(own) {
				p.mistake("%s is missing", missing)
			}
		}
		p.checkFiles(set, own, ofVersion(p.sources[name], own.from))
	}
	p.about = ""
}

func (p *parser) checkFiles(set *templates, own folder, sources map[string]string) {
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		switch plain, locale := splitLocale(file, typeFiles); plain {
		case textFile:
			p.checkBodies(own, sources, locale)
		case htmlFile:
			p.checkBodies(own, sources, locale)
			p.checkImages(set, own, path.Join(own.name, file), sources[file], locale)
			layout := p.layoutFor(htmlLayoutFile, locale)
			p.checkImages(set, own, layout, p.layouts[layout], locale)
		case attachmentsFile:
			p.checkAttachments(set, own, sources[file])
		}
	}
}

// checkBodies reports a body that exists without a locale and is missing in this one, and the
// reverse: a mail would lack it.
func (p *parser) checkBodies(own folder, sources map[string]string, locale string) {
	for _, file := range bodyFiles {
		other := localized(file, locale)
		_, plain := sources[file]
		_, has := sources[other]
		switch {
		case plain && !has:
			p.mistakeOnce("%s is missing: %s exists without a locale, and a mail is in one language", path.Join(own.name, other), file)
		case has && !plain && own.hasBody(""): // otherwise a missing body is reported anyway
			p.mistakeOnce("%s is missing, for mails in other locales than %s", path.Join(own.name, file), locale)
		}
	}
}

// checkImages reports images that an HTML template shows and that do not exist.
func (p *parser) checkImages(set *templates, own folder, name, source, locale string) {
	list, _ := locales(locale, "") // isKnown has checked it
	for _, image := range imagesIn(source) {
		if set.findFile(own, image, list...) == nil {
			p.mistakeOnce("%s shows cid:%s, but there is no file %s", name, image, inFolders(own.name, image))
		}
	}
}

// checkAttachments reports files that are attached by name and do not exist.
func (p *parser) checkAttachments(set *templates, own folder, source string) {
	for line := range strings.Lines(source) {
		name := strings.TrimSpace(line)
		if name != "" && !strings.Contains(line, "{{") && set.findFile(own, name) == nil {
			p.mistake("%s attaches %s, but there is no file %s", path.Join(own.name, attachmentsFile), name, inFolders(own.name, name))
		}
	}
}

// inFolders names the places where a type's file can be.
func inFolders(folder, name string) string {
	if folder == defaultFolder {
		return path.Join(folder, name)
	}
	return path.Join(folder, name) + " or " + path.Join(defaultFolder, name)
}
