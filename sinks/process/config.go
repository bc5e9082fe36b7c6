package process

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/waybill-go/waybill/sinks"
)

// Defaults and limits of the configuration.
const (
	DefaultGrace        = 5 * time.Second
	DefaultStartTimeout = 30 * time.Second
	DefaultMaxLineBytes = 4 << 20

	minMaxLineBytes = 1 << 10
	maxMaxLineBytes = 1 << 30
)

// Config has the settings of a sink, which are below "with" in the configuration. Only
// Command is required; any other zero field means its default.
type Config struct {
	Command      []string          `yaml:"command" secret:"arguments" doc:"Program and its arguments, as a list; no shell is involved. A program without a slash is searched in PATH; a relative path is relative to dir. Required"`
	Dir          string            `yaml:"dir" doc:"Working directory of the program. Default: that of this program"`
	Env          map[string]string `yaml:"env" secret:"true" doc:"Environment variables of the program; they override those that it inherits"`
	InheritEnv   []string          `yaml:"inherit_env" doc:"Environment variables that the program inherits, besides those that every program needs (PATH, HOME, TMPDIR, LANG, TZ and the like): names, prefixes with a * (AWS_*), or * for all. The others are withheld, because they may contain passwords of the database and of other sinks"`
	Grace        time.Duration     `yaml:"grace" doc:"How long the program may take to end after its stdin is closed, and again after SIGTERM, before it is killed. Default 5s"`
	StartTimeout time.Duration     `yaml:"start_timeout" doc:"How long the program may take from its start to its hello message. Default 30s"`
	MaxLineBytes int               `yaml:"max_line_bytes" doc:"Longest line in bytes, in both directions, 1024 to 1073741824. A notification that needs a longer line is dead at once. Default 4194304"`

	// Tests change these; 0 means the constant of the same name.
	longestPause, drainTime time.Duration
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero.
func (c *Config) SetDefaults() {
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.MaxLineBytes == 0 {
		c.MaxLineBytes = DefaultMaxLineBytes
	}
}

// Validate returns all mistakes, joined. Open checks whether the program exists, because
// only the machine that runs it can know.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.check()
}

func (c *Config) check() error {
	var errs []error
	mistake := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }

	switch {
	case len(c.Command) == 0:
		mistake("command: is missing; give the program and its arguments, such as [python3, handler.py]")
	case strings.TrimSpace(c.Command[0]) == "":
		mistake("command: the program is empty; give it first, such as [python3, handler.py]")
	case slices.ContainsFunc(c.Command, hasNUL):
		mistake("command: contains a NUL byte, which no argument can hold")
	}
	if hasNUL(c.Dir) {
		mistake("dir: contains a NUL byte, which no path can hold")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		switch {
		case name == "" || strings.Contains(name, "=") || hasNUL(name):
			mistake("env: %q is not the name of a variable; leave = and NUL out", name)
		case hasNUL(c.Env[name]):
			mistake("env.%s: the value contains a NUL byte, which no variable can hold", name)
		}
	}
	for _, pattern := range c.InheritEnv {
		name := strings.TrimSuffix(pattern, "*")
		if pattern == "" || strings.ContainsAny(name, "*=$\x00") || strings.ContainsFunc(name, unicode.IsSpace) {
			mistake("inherit_env: %q is neither the name of a variable nor the beginning of names with a * at its end; leave =, $, white space and NUL out", pattern)
		}
	}
	for _, d := range []struct {
		key             string
		value, standard time.Duration
	}{
		{"grace", c.Grace, DefaultGrace},
		{"start_timeout", c.StartTimeout, DefaultStartTimeout},
	} {
		if d.value < 0 {
			mistake("%s: %s is negative; leave it out for %s", d.key, d.value, d.standard)
		}
	}
	if c.MaxLineBytes < minMaxLineBytes || c.MaxLineBytes > maxMaxLineBytes {
		mistake("max_line_bytes: %d is outside %d..%d", c.MaxLineBytes, minMaxLineBytes, maxMaxLineBytes)
	}
	return errors.Join(errs...)
}

// credentials returns the texts that logs and errors must not repeat: the values of
// environment variables and of flags that begin with "--". Other arguments are mostly file
// names, which appear in every stack trace.
func (c *Config) credentials() []string {
	all := slices.Collect(maps.Values(c.Env))
	for i, argument := range c.Command {
		flag, value, hasValue := strings.Cut(argument, "=")
		switch {
		case !strings.HasPrefix(flag, "--"):
		case hasValue:
			all = append(all, value)
		case i > 0 && i+1 < len(c.Command) && !strings.HasPrefix(c.Command[i+1], "-"):
			all = append(all, c.Command[i+1])
		}
	}
	return all
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
