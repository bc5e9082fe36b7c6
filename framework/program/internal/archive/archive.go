// Package archive writes exported rows as lines of JSON or as Parquet. A file is there as
// a whole, under its name, or not at all.
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

// Stdout is the output that is no file.
const Stdout = "-"

// Format is what is written.
type Format string

// The formats.
const (
	JSONLines Format = "jsonl"
	Parquet   Format = "parquet"
)

// ErrFormat: the format is unknown, or does not fit the name of the file.
var ErrFormat = errors.New("unsuitable format")

// FormatFor is the format of an output: what was asked for, or else Parquet for names that
// end with .parquet, and lines of JSON for all others.
func FormatFor(asked, output string) (Format, error) {
	format := Format(asked)
	switch {
	case asked == "" && strings.HasSuffix(output, ".parquet"):
		return Parquet, nil
	case asked == "":
		format = JSONLines
	case format != JSONLines && format != Parquet:
		return "", fmt.Errorf("%w %q: use jsonl or parquet", ErrFormat, asked)
	case format == JSONLines && strings.HasSuffix(output, ".parquet"):
		return "", fmt.Errorf("%w: %s says parquet and the format is %s", ErrFormat, output, format)
	}
	if format == Parquet && compressionOf(output) != "" {
		return "", fmt.Errorf("%w: Parquet is compressed by itself: end %s with .parquet", ErrFormat, output)
	}
	return format, nil
}

// Archive is an export that is being written. It is for one goroutine.
type Archive struct {
	rows   rows
	closes []func() error // ends what is around the output, the inner ones first
	file   *file          // nil for standard output
}

// rows writes rows in a format.
type rows interface {
	write(*admin.Exported) error
	close() error // writes what is left; the output stays open
}

// Create begins an archive: a new file, or what is standard output for "-". A name that
// exists gives an error that is fs.ErrExist. Names that end with .gz or .zst are
// compressed so.
func Create(output string, format Format, stdout io.Writer) (*Archive, error) {
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
	if c := compress(to, compressionOf(output)); c != nil {
		to = c
		a.closes = append([]func() error{c.Close}, a.closes...)
	}
	if format == Parquet {
		a.rows = newParquet(to)
	} else {
		a.rows = newLines(to)
	}
	return a, nil
}

// compressionOf is gz, zst or "".
func compressionOf(output string) string {
	for _, c := range []string{"gz", "zst"} {
		if strings.HasSuffix(output, "."+c) {
			return c
		}
	}
	return ""
}

// compress returns a compressing writer; nil for no compression.
func compress(to io.Writer, with string) io.WriteCloser {
	switch with {
	case "gz":
		return gzip.NewWriter(to)
	case "zst":
		w, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err) // its options are constants
		}
		return w
	}
	return nil
}

// Write adds a row, which it does not keep.
func (a *Archive) Write(e *admin.Exported) error {
	if err := a.rows.write(e); err != nil {
		return fmt.Errorf("write offset %d: %w", e.Offset, err)
	}
	return nil
}

// Commit writes what is left, and gives the file its name once all of it is on the disk.
// After an error there is no file.
func (a *Archive) Commit() error {
	errs := []error{a.rows.close()}
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

// Discard removes what was written to a file.
func (a *Archive) Discard() {
	if a.file != nil {
		a.file.discard()
	}
}
