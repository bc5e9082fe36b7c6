package jsonlines

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/sinks"
)

// Output is the path that means the program's standard output.
const Output = "-"

// Defaults and limits of the configuration.
const (
	DefaultMaxSizeMB = 100
	maxMaxSizeMB     = 1 << 20 // a terabyte
)

// Config has the settings of a sink, which are below "with" in the configuration. A zero
// field means its default.
type Config struct {
	Path       string `yaml:"path" doc:"File to write, in an existing folder, or - for the program's output. Only one program may write a file. Default -"`
	Fsync      bool   `yaml:"fsync" doc:"Wait until the disk has stored each batch before it counts as delivered, which is slower. Default false"`
	MaxSizeMB  int    `yaml:"max_size_mb" doc:"Size in MiB at which the file is renamed, with the time in its name, and a new one starts; also the longest line. Default 100"`
	MaxFiles   int    `yaml:"max_files" doc:"How many renamed files to keep; the oldest are deleted. Default: all"`
	MaxAgeDays int    `yaml:"max_age_days" doc:"Age in days at which renamed files are deleted. Default: never"`
	Compress   bool   `yaml:"compress" doc:"Compress renamed files with gzip. Default false"`
}

var (
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// SetDefaults fills the fields that are zero.
func (c *Config) SetDefaults() {
	if c.Path == "" {
		c.Path = Output
	}
	if c.MaxSizeMB == 0 {
		c.MaxSizeMB = DefaultMaxSizeMB
	}
}

// Validate returns all mistakes, joined. Open checks whether the path can be written.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return errors.Join(
		filled.validateOutput(),
		outside("max_size_mb", filled.MaxSizeMB, 1, maxMaxSizeMB),
		outside("max_files", filled.MaxFiles, 0, 1<<20),
		outside("max_age_days", filled.MaxAgeDays, 0, 36500),
	)
}

// validateOutput refuses settings of files if the sink writes to the program's output.
func (c *Config) validateOutput() error {
	if c.Path != Output {
		return nil
	}
	var problems []error
	for _, setting := range []struct {
		key string
		set bool
	}{
		{"fsync", c.Fsync},
		{"max_size_mb", c.MaxSizeMB != DefaultMaxSizeMB},
		{"max_files", c.MaxFiles != 0},
		{"max_age_days", c.MaxAgeDays != 0},
		{"compress", c.Compress},
	} {
		if setting.set {
			problems = append(problems, fmt.Errorf("%s: is for files, but path is the program's output; set path, or leave it out", setting.key))
		}
	}
	return errors.Join(problems...)
}

func outside(key string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d is outside %d..%d", key, n, least, most)
	}
	return nil
}
