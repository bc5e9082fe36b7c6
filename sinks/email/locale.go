package email

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/waybill-go/waybill/sinks/internal/line"
)

// parseLocale returns the canonical form of a language tag; "" for "".
func parseLocale(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	tag, err := language.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a language tag like en or pt-BR", text)
	}
	return tag.String(), nil
}

// locales lists the locales in which to look for templates, the best first. The last one is "",
// for templates without a locale, whose language is own. wanted is one locale, or several as in
// Accept-Language: de-AT, en;q=0.5. Each is followed by its parents in CLDR: de-AT by de.
func locales(wanted, own string) ([]string, error) {
	wanted = line.Collapse(strings.ReplaceAll(wanted, "_", "-"))
	if wanted == "" {
		return []string{""}, nil
	}
	tags, _, err := language.ParseAcceptLanguage(wanted)
	if err != nil || len(tags) == 0 {
		return nil, quoting(fmt.Errorf("%w: use a language tag like de or pt-BR", ErrLocale), wanted)
	}
	var list []string
	for _, tag := range tags {
		for ; tag != language.Und; tag = tag.Parent() {
			name := tag.String()
			if name == own {
				return append(list, ""), nil
			}
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return append(list, ""), nil
}

// localized returns the name of a file in a locale: subject.de.tmpl.
func localized(file, locale string) string {
	if locale == "" {
		return file
	}
	ending := path.Ext(file)
	return strings.TrimSuffix(file, ending) + "." + locale + ending
}

// splitLocale is the reverse of localized for known templates. For others it returns "".
func splitLocale(file string, known []string) (name, locale string) {
	for _, name := range known {
		if file == name {
			return name, ""
		}
		locale, of := strings.CutPrefix(file, strings.TrimSuffix(name, templateEnding)+".")
		if of {
			return name, strings.TrimSuffix(locale, templateEnding)
		}
	}
	return "", ""
}
