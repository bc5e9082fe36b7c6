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

// filePrefix begins a value that a file holds.
const filePrefix = "file:"

// maxValueSize is far above any secret.
const maxValueSize = 64 << 10

// whole returns what a value as a whole stands for: file:PATH for what that file
// holds, and file::… for the text file:…. brought says that it is a file's.
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

// file returns what a file holds, without the line ends behind it. shown stands
// for it in reports.
func (o outside) file(path, shown string) (text, problem string) {
	if path == "" {
		return "", "file: names no file; write file:/run/secrets/name, or file:: for a text that begins with file:"
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
	// Others may never end, and give a second reader something else.
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

// readFile reads one byte more than limit at most, so that callers see what is
// larger.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// withoutPath is the error without the path, which stands before it already.
func withoutPath(err error) error {
	if failed := new(fs.PathError); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
