package config

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// secrecy says how much of a value nobody is shown. It is the field tag secret, whose
// values [sinks.NewKind] explains; another one hides as much as "true".
type secrecy string

const (
	hidesNothing   secrecy = "false"
	hidesPassword  secrecy = "password"
	hidesPath      secrecy = "url"
	hidesArguments secrecy = "arguments"
	hidesAll       secrecy = "true"
	// untagged hides passwords in addresses, and all of what has the name of a secret.
	untagged secrecy = ""
)

// mask stands for a secret.
const mask = "***"

// secretWords are parts of names of what must not be shown.
const secretWords = `passw(?:or)?d|passphrase|secret|token|bearer|credential|authorization|cookie|signature|api[-_]?key|access[-_]?key|private[-_]?key`

var (
	secretName = regexp.MustCompile(`(?i)` + secretWords + `|(?:^|[-_])key$`)
	// A file's name is none, whatever is in the file.
	fileName = regexp.MustCompile(`(?i)[-_]?(?:file|path)$`)

	// The last @ ends the password, which may hold others if it is not encoded.
	passwordInURL = regexp.MustCompile(`(?s)(://[^:/?#@]*:)(.*)(@)`)
	passwordQuery = regexp.MustCompile(`(?i)([?&][\w-]*(?:` + secretWords + `)[\w-]*=)([^&#]*)()`)
	// As in the list of key=value that libpq takes.
	passwordEntry = regexp.MustCompile(`(?is)((?:` + secretWords + `)[\w-]*\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)()`)
	userAlone     = regexp.MustCompile(`()([^@]*)(@)`)

	urlParts = regexp.MustCompile(`(?s)^([A-Za-z][\w+.-]*://)([^/?#]*)(.*)$`)
	flagName = regexp.MustCompile(`(?s)^(--[a-z][a-z0-9-]*|-[A-Za-z])(?:=(.*))?$`)
)

// secrecy is what the field's tag says, or what holds where it has none.
func (f field) secrecy(above secrecy) secrecy {
	if tag, ok := f.tag.Lookup("secret"); ok {
		return secrecy(tag)
	}
	return above.below(f.name)
}

// below is what holds for a name that stands below.
func (s secrecy) below(name string) secrecy {
	if s == untagged && secretName.MatchString(name) && !fileName.MatchString(name) {
		return hidesAll
	}
	return s
}

// split replaces each secret piece of a value by what hide makes of it.
func (s secrecy) split(value string, hide func(piece string) string) string {
	switch s {
	case hidesNothing:
		return value
	case hidesPassword, untagged:
		return splitPassword(value, hide)
	case hidesPath:
		return splitURL(value, hide)
	case hidesArguments:
		return splitArgument(value, hide)
	}
	return hide(value)
}

func splitPassword(value string, hide func(string) string) string {
	if !strings.Contains(value, "://") {
		return replaceSecond(passwordEntry, value, hide)
	}
	return replaceSecond(passwordQuery, replaceSecond(passwordInURL, value, hide), hide)
}

// splitURL leaves scheme, user, host and port. A user without a password is one.
func splitURL(value string, hide func(string) string) string {
	hasPassword := false
	value = replaceSecond(passwordInURL, value, func(password string) string {
		if hasPassword = password != ""; hasPassword {
			return hide(password)
		}
		return ""
	})
	parts := urlParts.FindStringSubmatch(value)
	if parts == nil {
		return hide(value)
	}
	authority, path := parts[2], parts[3]
	if !hasPassword {
		authority = replaceSecond(userAlone, authority, hide)
	}
	if path != "" {
		path = path[:1] + hide(path[1:])
	}
	return parts[1] + authority + path
}

// splitArgument leaves the names of flags.
func splitArgument(value string, hide func(string) string) string {
	parts := flagName.FindStringSubmatch(value)
	switch {
	case parts == nil:
		return hide(value)
	case strings.Contains(value, "="):
		return parts[1] + "=" + hide(parts[2])
	}
	return value
}

// replaceSecond hides the second group of each match, between the others.
func replaceSecond(pattern *regexp.Regexp, value string, hide func(string) string) string {
	return pattern.ReplaceAllStringFunc(value, func(found string) string {
		parts := pattern.FindStringSubmatch(found)
		return parts[1] + hide(parts[2]) + parts[3]
	})
}

// masked is a value without its secrets.
func (s secrecy) masked(value string) string { return s.split(value, maskAll) }

func maskAll(piece string) string {
	if piece == "" {
		return ""
	}
	return mask
}

// held stands for a reference while what is around it is masked. No value has one.
const held = "\x00"

var (
	aroundHeld = regexp.MustCompile(`[^\x00]+`)
	// A $$ is no beginning of one.
	reference   = regexp.MustCompile(`\$\$|\$\{(\w+|file:[^}]*)(:-[^}]*)?\}`)
	fileInPlace = regexp.MustCompile(`^file:[^:]`)
)

// maskedReference is a value as the user typed it, with ${NAME} in it or in a file: the
// references stay, without their defaults.
func (s secrecy) maskedReference(typed string) string {
	var references []string
	text := reference.ReplaceAllStringFunc(typed, func(found string) string {
		parts := reference.FindStringSubmatch(found)
		if parts[1] == "" {
			return found
		}
		references = append(references, "${"+parts[1]+"}")
		return held
	})
	if !fileInPlace.MatchString(typed) {
		text = s.split(text, func(piece string) string { return aroundHeld.ReplaceAllString(piece, mask) })
	}
	for _, r := range references {
		text = strings.Replace(text, held, r, 1)
	}
	return text
}

// onlyReferences says that a value as the user typed it holds no text of its own.
func onlyReferences(typed string) bool {
	return !strings.Contains(hidesAll.maskedReference(typed), mask)
}

// concealed are pieces of text that no report repeats, with what stands in their place.
type concealed map[string]string

// minSecret is the shortest value that is taken for a secret; shorter ones stand
// in every text.
const minSecret = 4

func (c concealed) add(value, shown string) {
	if len(value) < minSecret {
		return
	}
	for _, form := range []string{value, quotedInside(value), oneLine(value)} {
		c[form] = shown
	}
}

// redacted replaces the longest pieces first, since one may hold another.
func (c concealed) redacted(text string) string {
	pieces := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	for _, piece := range pieces {
		text = strings.ReplaceAll(text, piece, c[piece])
	}
	return text
}

// quotedInside is what stands between the quotes of %q.
func quotedInside(value string) string {
	quoted := strconv.Quote(value)
	return quoted[1 : len(quoted)-1]
}
