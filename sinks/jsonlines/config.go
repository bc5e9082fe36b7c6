package jsonlines

import (
	"errors"

	"github.com/waybill-go/waybill/sinks"
)

// Output is the path that means the program's standard output.
const Output = "-"

// Config has the settings of a sink, which are below "with" in the configuration. A zero
// field means its default.
type Config struct {
	Path  string `yaml:"path" doc:"File to write, in an existing folder, or - for the program's output. Only one program may write a file. Default -"`
	Fsync bool   `yaml:"fsync" doc:"Wait until the disk has stored each batch before it counts as delivered, which is slower. Default false"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(sinks.Instance) (sinks.Sink, error) { return New(c) }

// SetDefaults fills the fields that are zero.
func (c *Config) SetDefaults() {
	if c.Path == "" {
		c.Path = Output
	}
}

// Validate refuses settings of files if the sink writes to the program's output. Open checks
// whether the path can be written.
func (c *Config) Validate() error {
	if c.Fsync && (c.Path == "" || c.Path == Output) {
		return errors.New("fsync: is for files, but path is the program's output; set path, or leave it out")
	}
	return nil
}
