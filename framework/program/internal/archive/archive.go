// Package archive writes exported rows as lines of JSON or as Parquet. A file either gets its name when it
// is complete, or does not exist.
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

// Format is the format of an archive.
type Format string

// The formats.
const (
	JSONLines Format = "jsonl"
	Parquet   Format = "parquet"
)

// ErrFormat means that the format is unknown, or does not fit the name of the file.
var ErrFormat = errors.New("unsuitable format")

// FormatFor returns the format of an output: the requested one, or else Parquet for names that end with
// .parquet, and lines of JSON for all others.
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
		return "", fmt.Errorf("%w: the name %s means parquet, but the format is %s", ErrFormat, output, format)
	}
	if format == Parquet && compressionOf(output) != "" {
		return "", fmt.Errorf("%w: Parquet is compressed by itself: end %s with .parquet", ErrFormat, output)
	}
	return format, nil
}

// Archive is an unfinished export. It is not safe for concurrent use.
type Archive struct {
	rows   rows
	closes []func() error // close the writers around the output, the inner ones first
	file   *file          // nil if the output is standard output
}

// rows writes rows in a format.
type rows interface {
	write(*admin.Exported) error
	close() error // writes the remaining rows; the output stays open
}

// Create begins an archive: a new file, or standard output for Stdout. It returns fs.ErrExist if the file
// exists. Names that end with .gz or .zst are compressed.
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

// compressionOf returns gz, zst or "".
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
			panic(err) // cannot happen: the options are constants
		}
		return w
	}
	return nil
}

// Write adds a row. It does not keep the row.
func (a *Archive) Write(e *admin.Exported) error {
	if err := a.rows.write(e); err != nil {
		return fmt.Errorf("write offset %d: %w", e.Offset, err)
	}
	return nil
}

// Commit writes the remaining rows, and renames the file when it is on the disk. After an error there is
// no file.
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

// Discard removes an uncommitted file.
func (a *Archive) Discard() {
	if a.file != nil {
		a.file.discard()
	}
}
