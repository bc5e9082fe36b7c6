package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${…} in a value by what resolve makes of the text between
// the braces. $$ is one dollar sign, and any other dollar sign is itself. All that
// is wrong is reported at once.
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

// outside is what a configuration can have values from: environment variables and
// files. They may be passwords, so the report shows none.
type outside struct {
	report    *report
	variables map[string]string
	folder    string // from which paths of files start
}

// resolve returns what ${reference} stands for: ${NAME}, ${NAME:-default}, where
// the default stands in for a variable that is unset or empty, or ${file:PATH}.
// brought says that it came from outside.
func (o outside) resolve(reference string) (value string, brought bool, problem string) {
	if path, ok := strings.CutPrefix(reference, filePrefix); ok {
		value, problem = o.file(path, "${"+reference+"}")
		return value, true, problem
	}
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	value, set := o.variables[name]
	switch {
	case !variableName.MatchString(name):
		// Not repeated: it may be a piece of a password.
		return "", false, "${…} names no variable; write ${NAME}, ${NAME:-default} or ${file:PATH}, and $$ for a dollar sign"
	case hasFallback && value == "":
		return fallback, false, ""
	case !set:
		return "", false, fmt.Sprintf("the environment variable %s is not set; set it, or give a default as ${%s:-…}", name, name)
	}
	o.report.conceal(value, "${"+name+"}")
	return value, value != "", ""
}
