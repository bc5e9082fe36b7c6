package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// filePrefix begins a value that is read from a file.
const filePrefix = "file:"

// maxValueSize is far above any secret.
const maxValueSize = 64 << 10

// whole returns the meaning of a whole value: file:PATH is the content of that file, file::… is
// the text file:…, and anything else is itself. brought reports whether a file was read.
func (o outside) whole(value, typed string) (text string, brought bool, problem string) {
	path, ok := strings.CutPrefix(value, filePrefix)
	switch {
	case !ok:
		return value, false, ""
	case strings.HasPrefix(path, ":"):
		return filePrefix + path[1:], false, ""
	}
	text, problem = o.file(path, typed)
	return text, true, problem
}

// file returns the content of a file without line ends at its end. Reports show shown instead.
func (o outside) file(path, shown string) (text, problem string) {
	if path == "" {
		return "", "file: does not name a file; write file:/run/secrets/name, or file:: for a text that begins with file:"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.folder, path)
	}
	content, problem := readValue(path)
	if problem != "" {
		return "", fmt.Sprintf("the file %s %s", path, problem)
	}
	o.report.conceal(content, shown)
	return content, ""
}

func readValue(path string) (text, problem string) {
	// Pipes and devices may never end, and differ each time they are read.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", "is not a regular file"
	}
	content, err := readFile(path, maxValueSize)
	content = bytes.TrimRight(content, "\r\n")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "does not exist"
	case err != nil:
		return "", fmt.Sprintf("cannot be read: %v", withoutPath(err))
	case len(content) > maxValueSize:
		return "", "is larger than 64 KiB, the limit of a value"
	case len(content) == 0:
		return "", "is empty"
	case !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0:
		return "", "is not text"
	}
	return string(content), ""
}

// readFile reads at most limit+1 bytes, so that callers can tell that a file is too large.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// withoutPath removes the path from an error, because the report names it already.
func withoutPath(err error) error {
	if failed := new(fs.PathError); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
