// Package archive writes exported rows as lines of JSON. A file either gets its name when it is complete, or
// does not exist.
package archive

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/waybill-go/waybill/framework/admin"
)

// Stdout is the name of the output for standard output.
const Stdout = "-"

// Archive is an unfinished export. It is not safe for concurrent use.
type Archive struct {
	lines  *lines
	closes []func() error // close the writers around the output, the inner ones first
	file   *file          // nil if the output is standard output
}

// Create begins an archive: a new file, or standard output for Stdout. It returns fs.ErrExist if the file
// exists. Names that end with .gz or .zst are compressed.
func Create(output string, stdout io.Writer) (*Archive, error) {
	a := &Archive{}
	to := stdout
	if output != Stdout {
		var err error
		if a.file, err = create(output); err != nil {
			return nil, err
		}
		to = a.file
	}
	buffered := bufio.NewWriterSize(to, 64<<10)
	to = buffered
	a.closes = []func() error{buffered.Flush}
	if c := compress(to, output); c != nil {
		to = c
		a.closes = append([]func() error{c.Close}, a.closes...)
	}
	a.lines = newLines(to)
	return a, nil
}

// compress returns the writer for the end of a name; nil for no compression.
func compress(to io.Writer, name string) io.WriteCloser {
	switch {
	case strings.HasSuffix(name, ".gz"):
		return gzip.NewWriter(to)
	case strings.HasSuffix(name, ".zst"):
		w, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // cannot happen: the options are constants
		}
		return w
	}
	return nil
}

// Write adds a row. It does not keep the row.
func (a *Archive) Write(e *admin.Exported) error {
	if err := a.lines.write(e); err != nil {
		return fmt.Errorf("write offset %d: %w", e.Offset, err)
	}
	return nil
}

// Commit writes the remaining rows, and renames the file when it is on the disk. After an error there is
// no file.
func (a *Archive) Commit() error {
	var errs []error
	for _, end := range a.closes {
		errs = append(errs, end())
	}
	err := errors.Join(errs...)
	switch {
	case a.file == nil:
		return err
	case err != nil:
		a.file.discard()
		return err
	}
	return a.file.commit()
}

// Discard removes an uncommitted file.
func (a *Archive) Discard() {
	if a.file != nil {
		a.file.discard()
	}
}
