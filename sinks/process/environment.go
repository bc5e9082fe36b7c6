package process

import (
	"maps"
	"runtime"
	"slices"
	"strings"
)

// neededVariables are the variables that every program inherits: paths, the user, the locale
// and the time zone. None of them is a secret. On Windows, neededOnWindows adds to them.
var neededVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TEMP", "TMP", "LANG", "LC_*", "TZ",
}

var neededOnWindows = []string{
	"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	"USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles*", "CommonProgramFiles*",
}

// environment returns the program's environment: the needed variables and those of InheritEnv
// from the parent, then Env, which overrides them. The other variables of the parent are left
// out, because they may contain the passwords of the database and of other sinks.
func (c *Config) environment(parent []string) []string {
	variables := []string{} // with nil, os/exec would pass on the parent's environment
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

// matches reports whether one of the patterns matches a name. A pattern is a name, or the
// beginning of names followed by a *.
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

// same compares names of variables, ignoring their case on Windows.
func same(a, b string) bool {
	return a == b || runtime.GOOS == "windows" && strings.EqualFold(a, b)
}
