package config

import (
	"errors"
	"io/fs"
	"strings"
)

// DefaultFile is the file that commands read if none is named and it exists.
const DefaultFile = "waybill.yaml"

// maxFileSize is far above any real configuration; a larger file must be something else.
const maxFileSize = 1 << 20

// Source is where a configuration comes from. The zero value reads nothing.
type Source struct {
	// File is the YAML file; "" for none.
	File string
	// Database overrides the key database, as --database does; "" for none.
	Database string
	// Listen overrides the key forwarder.listen, as --listen does; nil for none.
	Listen *bool
	// Sinks are the sinks to forward to, as with --sink; empty for all.
	Sinks []string
	// Environ is the environment, as NAME=value pairs, such as [os.Environ] returns. If a
	// name occurs twice, the last value counts. Line ends at the end of a value do not count.
	Environ []string
}

// read returns the file's text, and whether there is a file at all.
func (s Source) read(r *report) (text []byte, ok bool) {
	if s.File == "" {
		return nil, false
	}
	text, err := readFile(s.File, maxFileSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.add(s.File, 0, "the file does not exist")
	case err != nil:
		r.add(s.File, 0, "%v", withoutPath(err))
	case len(text) > maxFileSize:
		r.add(s.File, 0, "the file is larger than 1 MiB, the limit of a configuration")
	default:
		return text, true
	}
	return nil, false
}

// variables returns the environment as a map, without line ends at the end of values, which secrets often have.
func (s Source) variables() map[string]string {
	variables := make(map[string]string, len(s.Environ))
	for _, entry := range s.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			variables[name] = strings.TrimRight(value, "\r\n")
		}
	}
	return variables
}
