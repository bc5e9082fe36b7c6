package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} and ${NAME:-default} in a value; the default stands in
// for a variable that is unset or empty. $$ is one dollar sign, and any other
// dollar sign is itself. All that is wrong is reported at once.
func expand(text string, lookUp lookUp) (expanded string, problems []string) {
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
		value, problem := lookUp.resolve(reference)
		if problem != "" {
			problems = append(problems, problem)
		}
		b.WriteString(value)
		text = after
	}
}

// lookUp gives an environment variable, and whether it is set.
type lookUp func(name string) (value string, set bool)

func (l lookUp) resolve(reference string) (value, problem string) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	value, set := l(name)
	switch {
	case !variableName.MatchString(name):
		// Not repeated: it may be a piece of a password.
		return "", "${…} names no variable; write ${NAME} or ${NAME:-default}, and $$ for a dollar sign"
	case hasFallback && value == "":
		return fallback, ""
	case !set:
		return "", fmt.Sprintf("the environment variable %s is not set; set it, or give a default as ${%s:-…}", name, name)
	}
	return value, ""
}
