package email

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
)

// versionInName matches the version in the name of a template: text.v2.tmpl, html.v2.de.tmpl.
var versionInName = regexp.MustCompile(`^([a-z-]+)\.v([1-9][0-9]{0,8})((?:\.[^.]+)?\.tmpl)$`)

// splitVersion returns the name of a template without its version, and the version; 0 if it has none.
func splitVersion(file string) (plain string, version int) {
	parts := versionInName.FindStringSubmatch(file)
	if parts == nil {
		return file, 0
	}
	version, _ = strconv.Atoi(parts[2])
	return parts[1] + parts[3], version
}

// versionsIn returns from which versions the files of a folder differ, in ascending order: the numbers
// in their names, and before those 1. There is none without numbers: the files then say nothing about
// versions.
func versionsIn[T any](files map[string]T) []int {
	numbers := make(map[int]bool)
	for file := range files {
		if _, version := splitVersion(file); version > 0 {
			numbers[1], numbers[version] = true, true
		}
	}
	return slices.Sorted(maps.Keys(numbers))
}

// ofVersion returns the files of a folder for payloads of a version, without versions in their names.
// A template with the number N is for the versions from N to the next number of the same template. It
// replaces the earlier ones in all locales, so that a mail is not written for two versions.
func ofVersion[T any](files map[string]T, version int) map[string]T {
	nearest := make(map[string]int) // by template without a locale
	for file := range files {
		plain, from := splitVersion(file)
		if name, _ := splitLocale(plain, typeFiles); from <= version {
			nearest[name] = max(nearest[name], from)
		}
	}
	chosen := make(map[string]T, len(files))
	for file, content := range files {
		plain, from := splitVersion(file)
		if name, _ := splitLocale(plain, typeFiles); from <= version && from == nearest[name] {
			chosen[plain] = content
		}
	}
	return chosen
}

// readable returns an envelope with the payload that the templates of own read. If their names have
// versions, that is the stored payload, unless it is older than the templates of a collection; otherwise
// it is the one in the newest version, if the program knows the type.
func (c *Composer) readable(own folder, e *notification.Envelope) (*notification.Envelope, error) {
	switch newest := c.templates.newest(own.name); {
	case newest > 0 && e.Version > newest:
		return nil, fmt.Errorf("%w: the templates of %s read versions up to %d, not %d", ErrVersion, own.name, newest, e.Version)
	case !c.knows(e.Type), newest > 0 && e.Version >= own.from:
		return e, nil
	}
	return c.registered.Newest(e)
}

// knows reports whether the type is registered.
func (c *Composer) knows(typ string) bool {
	if c.registered == nil {
		return false
	}
	_, known := c.registered.Lookup(typ)
	return known
}

// explain returns the error of templates. If a field is missing, and nothing says which versions the
// templates read, they may be older than the payload: then the mail waits for newer ones. Version 1 is
// no reason to wait.
func (c *Composer) explain(own folder, data *Data, err error) error {
	if !errors.Is(err, ErrRender) {
		return err
	}
	if data.Payload == nil {
		err = fmt.Errorf("%w (a collection has payload and metadata in each of .Items)", err)
	}
	for _, item := range data.Items {
		_, isObject := item.Payload.(map[string]any)
		if isObject && item.Version > 1 && c.templates.newest(own.name) == 0 && !c.knows(item.Type) {
			return fmt.Errorf("%w: the templates of %s fail for version %d, and do not say which versions they read; name those for it like %s: %w",
				ErrVersion, own.name, item.Version, path.Join(item.Type, fmt.Sprintf("text.v%d.tmpl", item.Version)), err)
		}
	}
	return err
}
