package email

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// checkFolder checks that the files of a folder fit together.
func (p *parser) checkFolder(set *templates, folder string) {
	if folder != defaultFolder { // the default folder may be incomplete
		for _, missing := range set.missing(folder) {
			p.mistake("%s is missing", missing)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(p.sources[folder])) {
		switch plain, locale := splitLocale(file, typeFiles); plain {
		case textFile:
			p.checkBodies(set, folder, locale)
		case htmlFile:
			p.checkBodies(set, folder, locale)
			p.checkImages(set, folder, path.Join(folder, file), p.sources[folder][file], locale)
			layout := p.layoutFor(htmlLayoutFile, locale)
			p.checkImages(set, folder, layout, p.layouts[layout], locale)
		case attachmentsFile:
			p.checkAttachments(set, folder, p.sources[folder][file])
		}
	}
}

// checkBodies reports a body that exists without a locale and is missing in this one, and the
// reverse: a mail would lack it.
func (p *parser) checkBodies(set *templates, folder, locale string) {
	sources := p.sources[folder]
	for _, file := range bodyFiles {
		other := localized(file, locale)
		_, plain := sources[file]
		_, has := sources[other]
		switch {
		case plain && !has:
			p.mistakeOnce("%s is missing: %s exists without a locale, and a mail is in one language", path.Join(folder, other), file)
		case has && !plain && set.folders[folder].hasBody(""): // otherwise a missing body is reported anyway
			p.mistakeOnce("%s is missing, for mails in other locales than %s", path.Join(folder, file), locale)
		}
	}
}

// checkImages reports images that an HTML template shows and that do not exist.
func (p *parser) checkImages(set *templates, folder, name, source, locale string) {
	list, _ := locales(locale, "") // isKnown has checked it
	for _, image := range imagesIn(source) {
		if set.findFile(folder, image, list...) == nil {
			p.mistakeOnce("%s shows cid:%s, but there is no file %s", name, image, inFolders(folder, image))
		}
	}
}

// checkAttachments reports files that are attached by name and do not exist.
func (p *parser) checkAttachments(set *templates, folder, source string) {
	for line := range strings.Lines(source) {
		name := strings.TrimSpace(line)
		if name != "" && !strings.Contains(line, "{{") && set.findFile(folder, name) == nil {
			p.mistake("%s attaches %s, but there is no file %s", path.Join(folder, attachmentsFile), name, inFolders(folder, name))
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
