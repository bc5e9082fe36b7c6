package process

import (
	"maps"
	"runtime"
	"slices"
	"strings"
)

// neededVariables are those of the parent that every program gets: where things are,
// how people write, and what Windows cannot do without. None of them is a secret.
var neededVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TEMP", "TMP", "LANG", "LC_*", "TZ",
}

var neededOnWindows = []string{
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	"USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles*", "CommonProgramFiles*",
}

// environment is what the program gets: what it needs and what it is to inherit from
// its parent, then its own, which counts where both have a name. The rest of the
// parent's environment is none of its business: passwords of the database and of
// other sinks are there.
func (c *Config) environment(parent []string) []string {
	variables := []string{} // not nil, which os/exec takes for the parent's
	for _, variable := range parent {
		name, _, _ := strings.Cut(variable, "=")
		if needed(name) || matches(c.InheritEnv, name) {
			variables = append(variables, variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		variables = append(variables, name+"="+c.Env[name])
	}
	return variables
}

func needed(name string) bool {
	return matches(neededVariables, name) || runtime.GOOS == "windows" && matches(neededOnWindows, name)
}

// matches says whether a name is in a list of names, and of beginnings of names
// with a *.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			return same(name, pattern)
		case len(name) < len(beginning):
			return false
		}
		return same(name[:len(beginning)], beginning)
	})
}

// same compares names of variables, which have no case on Windows.
func same(a, b string) bool {
	return a == b || runtime.GOOS == "windows" && strings.EqualFold(a, b)
}
