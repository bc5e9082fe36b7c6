package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// environmentPrefix begins the variables that set keys.
const environmentPrefix = "WAYBILL_"

// environment has the variables that set keys: WAYBILL_FORWARDER_LEASE sets forwarder.lease. An
// empty variable counts as not set.
type environment struct {
	report *report
	set    map[string]string
	keys   map[string]string // the key of each variable that was looked up
	unread []string          // prefixes of the variables of sections that are not read
}

func newEnvironment(variables map[string]string, r *report) *environment {
	e := &environment{report: r, set: make(map[string]string), keys: make(map[string]string)}
	for name, value := range variables {
		if strings.HasPrefix(name, environmentPrefix) && value != "" {
			e.set[name] = value
		}
	}
	return e
}

// variable returns the name of a key's variable: in upper case, with underscores for everything
// but letters and digits.
func variable(key string) string {
	return environmentPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// lookUp returns the value of a key's variable.
func (e *environment) lookUp(key string) (value, name string, ok bool) {
	name = variable(key)
	value, ok = e.set[name]
	if other, asked := e.keys[name]; ok && asked && other != key {
		e.report.add(name, 0, "sets both %s and %s; write them in the file", other, key)
	}
	e.keys[name] = key
	return value, name, ok
}

// anyBelow reports whether a variable sets a key below a key.
func (e *environment) anyBelow(key string) bool {
	below := variable(key) + "_"
	for name := range e.set {
		if strings.HasPrefix(name, below) {
			return true
		}
	}
	return false
}

// skip marks the section of a key as not read, so that its variables are not reported as
// unknown.
func (e *environment) skip(key string) { e.unread = append(e.unread, variable(key)) }

// reportUnknown reports variables that do not set a key.
func (e *environment) reportUnknown() {
	known := slices.Collect(maps.Keys(e.keys))
	for _, name := range slices.Sorted(maps.Keys(e.set)) {
		if _, ok := e.keys[name]; ok || e.belongsToOthers(name) {
			continue
		}
		hint := ""
		if near := suggest(name, known); near != "" {
			hint = "; did you mean " + near + "?"
		}
		e.report.add(name, 0, "this variable does not match a key%s", hint)
	}
}

// serviceLink matches the variables that Kubernetes sets in every pod for a service whose name
// begins with waybill.
var serviceLink = regexp.MustCompile(`^WAYBILL_(.+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)

// belongsToOthers reports whether a variable with our prefix is not ours, or sets a key of a
// section that is not read.
func (e *environment) belongsToOthers(name string) bool {
	switch {
	case strings.HasPrefix(name, environmentPrefix+"TEST_"): // the tests' own
		return true
	case serviceLink.MatchString(name):
		return true
	case strings.HasSuffix(name, "_PORT") && strings.Contains(e.set[name], "://"): // a service link too
		return true
	}
	return slices.ContainsFunc(e.unread, func(section string) bool {
		return name == section || strings.HasPrefix(name, section+"_")
	})
}
