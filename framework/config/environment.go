package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// environmentPrefix begins the variables that stand for keys.
const environmentPrefix = "WAYBILL_"

// environment is the variables that stand for keys: WAYBILL_FORWARDER_LEASE for
// forwarder.lease. An empty one counts as not set.
type environment struct {
	report *report
	set    map[string]string
	keys   map[string]string // variable to the key that asked for it
	unread []string          // beginnings of variables that were not asked for
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

// variable is the name of a key's variable: upper case, everything but letters
// and digits an underscore.
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
		e.report.add(name, 0, "stands for both %s and %s; write them in the file", other, key)
	}
	e.keys[name] = key
	return value, name, ok
}

// anyBelow says whether a variable stands for something below a key.
func (e *environment) anyBelow(key string) bool {
	below := variable(key) + "_"
	for name := range e.set {
		if strings.HasPrefix(name, below) {
			return true
		}
	}
	return false
}

// skip says that what is below a key is not read, so it is unknown whether
// its variables mean something.
func (e *environment) skip(key string) { e.unread = append(e.unread, variable(key)) }

// reportUnknown reports variables that stand for no key.
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
		e.report.add(name, 0, "this variable stands for no key%s", hint)
	}
}

// serviceLink is what Kubernetes sets in every pod for a service whose name
// begins with waybill.
var serviceLink = regexp.MustCompile(`^WAYBILL_(.+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$`)

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
