// Package secret decides which parts of a configuration's values are secret, and hides them.
package secret

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Secrecy is how much of a value is hidden. It is the value of the field tag secret, which
// sinks.NewKind explains; an unknown one hides everything.
type Secrecy string

const (
	Nothing   Secrecy = "false"
	Password  Secrecy = "password"
	Path      Secrecy = "url"
	Arguments Secrecy = "arguments"
	All       Secrecy = "true"
	// Untagged hides passwords in addresses, and values whose key has the name of a secret.
	Untagged Secrecy = ""
)

// Mask replaces a secret.
const Mask = "***"

// secretWords are parts of names of what must not be shown.
const secretWords = `passw(?:or)?d|passphrase|secret|token|bearer|credential|authorization|cookie|signature|api[-_]?key|access[-_]?key|private[-_]?key`

var (
	secretName = regexp.MustCompile(`(?i)` + secretWords + `|(?:^|[-_])key$`)
	// The name of a file is not secret, even if its content is.
	fileName = regexp.MustCompile(`(?i)[-_]?(?:file|path)$`)

	// The last @ ends the password, which may contain others if it is not encoded.
	passwordInURL = regexp.MustCompile(`(?s)(://[^:/?#@]*:)(.*)(@)`)
	passwordQuery = regexp.MustCompile(`(?i)([?&][\w-]*(?:` + secretWords + `)[\w-]*=)([^&#]*)()`)
	// The key=value form of libpq.
	passwordEntry = regexp.MustCompile(`(?is)((?:` + secretWords + `)[\w-]*\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)()`)
	userAlone     = regexp.MustCompile(`()([^@]*)(@)`)

	urlParts = regexp.MustCompile(`(?s)^([A-Za-z][\w+.-]*://)([^/?#]*)(.*)$`)
	flagName = regexp.MustCompile(`(?s)^(--[a-z][a-z0-9-]*|-[A-Za-z])(?:=(.*))?$`)
)

// Below returns the secrecy of a key with that name below a key with secrecy s.
func (s Secrecy) Below(name string) Secrecy {
	if s == Untagged && secretName.MatchString(name) && !fileName.MatchString(name) {
		return All
	}
	return s
}

// Split replaces each secret part of a value with what hide returns for it.
func (s Secrecy) Split(value string, hide func(piece string) string) string {
	switch s {
	case Nothing:
		return value
	case Password, Untagged:
		return splitPassword(value, hide)
	case Path:
		return splitURL(value, hide)
	case Arguments:
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

// splitURL hides everything but scheme, user, host and port. It hides a user without a password,
// too, because that is often a token.
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

// splitArgument hides everything but the names of flags.
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

// Masked returns a value with its secrets masked.
func (s Secrecy) Masked(value string) string { return s.Split(value, maskAll) }

func maskAll(piece string) string {
	if piece == "" {
		return ""
	}
	return Mask
}

// held replaces a reference while the text around it is masked. No value contains it.
const held = "\x00"

var (
	aroundHeld = regexp.MustCompile(`[^\x00]+`)
	// $$ does not begin a reference.
	reference   = regexp.MustCompile(`\$\$|\$\{(\w+|file:[^}]*)(:-[^}]*)?\}`)
	fileInPlace = regexp.MustCompile(`^file:[^:]`)
)

// MaskedReference masks a value as the user typed it, and keeps its references, without their
// defaults.
func (s Secrecy) MaskedReference(typed string) string {
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
		text = s.Split(text, func(piece string) string { return aroundHeld.ReplaceAllString(piece, Mask) })
	}
	for _, r := range references {
		text = strings.Replace(text, held, r, 1)
	}
	return text
}

// OnlyReferences reports whether a value as the user typed it consists of references only.
func OnlyReferences(typed string) bool {
	return !strings.Contains(All.MaskedReference(typed), Mask)
}

// Concealed has texts to hide, with what to show instead.
type Concealed map[string]string

// minSecret is the length of the shortest value that is hidden; shorter ones occur in any text.
const minSecret = 4

func (c Concealed) Add(value, shown string) {
	if len(value) < minSecret {
		return
	}
	for _, form := range []string{value, quotedInside(value), OneLine(value)} {
		c[form] = shown
	}
}

// Redacted replaces the texts to hide, the longest first, because one may contain another.
func (c Concealed) Redacted(text string) string {
	pieces := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	for _, piece := range pieces {
		text = strings.ReplaceAll(text, piece, c[piece])
	}
	return text
}

// quotedInside returns a text as %q prints it, without the quotes.
func quotedInside(value string) string {
	quoted := strconv.Quote(value)
	return quoted[1 : len(quoted)-1]
}

// OneLine replaces line ends and control characters, which could garble a report or a terminal.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
}
