package config

import (
	"errors"
	"io/fs"
	"strings"
)

// DefaultFile is the file that is read where none is named, if it exists.
const DefaultFile = "waybill.yaml"

// maxFileSize is far above what a person writes; a larger file is something else.
const maxFileSize = 1 << 20

// Source is where a configuration comes from.
type Source struct {
	// File is the YAML file; "" for none.
	File string
	// Database is the value of --database, which wins over all others; "" for none.
	Database string
	// Listen is the value of --listen, which wins over all others; nil for none.
	Listen *bool
	// Sinks are the values of --sink; none for all sinks.
	Sinks []string
	// Environ is the environment, as NAME=value.
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
		r.add(s.File, 0, "there is no such file")
	case err != nil:
		r.add(s.File, 0, "%v", withoutPath(err))
	case len(text) > maxFileSize:
		r.add(s.File, 0, "is larger than 1 MiB, the limit of a configuration")
	default:
		return text, true
	}
	return nil, false
}

// variables is the environment as a map. Of names that stand there twice the
// last one counts, as for exec.
func (s Source) variables() map[string]string {
	variables := make(map[string]string, len(s.Environ))
	for _, entry := range s.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			variables[name] = value
		}
	}
	return variables
}
