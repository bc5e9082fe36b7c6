package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${…} in a value with what resolve returns for the text between the
// braces. $$ becomes a dollar sign, and any other dollar sign is left alone. It returns all
// problems.
func expand(text string, resolve func(reference string) (value, problem string)) (expanded string, problems []string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), problems
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			text = rest[1:]
			continue
		case !strings.HasPrefix(rest, "{"):
			b.WriteByte('$')
			text = rest
			continue
		}
		reference, after, closed := strings.Cut(rest[1:], "}")
		if !closed {
			return "", append(problems, "${ has no closing }; write $$ for a dollar sign")
		}
		value, problem := resolve(reference)
		if problem != "" {
			problems = append(problems, problem)
		}
		b.WriteString(value)
		text = after
	}
}

// outside resolves references to environment variables and files. Their values may be
// passwords, so the report conceals them.
type outside struct {
	report    *report
	variables map[string]string
	folder    string // relative paths of files start here
}

// resolve returns the value of ${reference}: ${NAME}, ${NAME:-default}, whose default applies
// to a variable that is unset or empty, or ${file:PATH}. brought reports whether the value came
// from a variable or a file.
func (o outside) resolve(reference string) (value string, brought bool, problem string) {
	if path, ok := strings.CutPrefix(reference, filePrefix); ok {
		value, problem = o.file(path, "${"+reference+"}")
		return value, true, problem
	}
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	value, set := o.variables[name]
	switch {
	case !variableName.MatchString(name):
		// The text is not quoted: it may be part of a password.
		return "", false, "${…} does not name a variable; write ${NAME}, ${NAME:-default} or ${file:PATH}, and $$ for a dollar sign"
	case hasFallback && value == "":
		return fallback, false, ""
	case !set:
		return "", false, fmt.Sprintf("the environment variable %s is not set; set it, or write a default as ${%s:-…}", name, name)
	}
	o.report.conceal(value, "${"+name+"}")
	return value, value != "", ""
}
