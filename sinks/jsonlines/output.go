package jsonlines

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileMode allows the owner to write, and the group to read.
const fileMode = 0o640

// stream is the program's output.
type stream struct {
	to   io.Writer
	torn bool // the last line has no line end
}

func (s *stream) check() error { return nil }
func (s *stream) open() error  { return nil }
func (s *stream) close() error { return nil }

func (s *stream) write(lines []byte) (int, error) {
	if s.torn {
		if _, err := s.to.Write([]byte("\n")); err != nil {
			return 0, fmt.Errorf("write to the output: %w", err)
		}
		s.torn = false
	}
	n, err := s.to.Write(lines)
	if err != nil {
		s.torn = n > 0 && lines[n-1] != '\n'
		return n, fmt.Errorf("write to the output: %w", err)
	}
	return n, nil
}

// file is a file that other programs may move, remove or replace: before and after each write, the
// file at the path is compared with the open one. After any error it is closed, so that the next open
// checks everything again.
type file struct {
	path   string
	fsync  bool
	lines  *os.File    // nil while closed
	size   int64       // of lines after the last write; another program may change it
	synced os.FileInfo // the file whose name the disk has stored
}

// check returns an error if a line could not be written. It changes nothing, because another
// program may be writing the file.
func (f *file) check() error {
	exists, err := f.stat()
	if err == nil && exists {
		err = f.tryOpen()
	} else if err == nil {
		err = f.tryCreate()
	}
	return f.named(err)
}

func (f *file) tryOpen() error {
	opened, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return bare(err)
	}
	return opened.Close()
}

// tryCreate creates and removes another file in the folder. It does not use the path, where
// another call may have just written its first line.
func (f *file) tryCreate() error {
	created, err := os.CreateTemp(filepath.Dir(f.path), ".waybill-")
	if err != nil {
		return bare(err)
	}
	return errors.Join(created.Close(), os.Remove(created.Name()))
}

// open opens the file at the path. It also does so if another program has moved, removed or
// replaced the one that was open. It ends a line that was cut short.
func (f *file) open() error {
	info, err := f.current()
	if errors.Is(err, errReplaced) {
		f.shut()
		info, err = f.reopen()
	}
	if err == nil && info.Size() != f.size {
		f.size, err = endLine(f.lines, info.Size())
	}
	if err != nil {
		f.shut()
	}
	return f.named(err)
}

// current describes the open file; errReplaced if it is not the one at the path.
func (f *file) current() (os.FileInfo, error) {
	if f.lines == nil {
		return nil, errReplaced
	}
	atPath, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, bare(err)
	}
	opened, err := f.lines.Stat()
	if err == nil && !os.SameFile(atPath, opened) {
		err = errReplaced
	}
	return opened, bare(err)
}

func (f *file) reopen() (os.FileInfo, error) {
	if _, err := f.stat(); err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return nil, bare(err)
	}
	f.lines, f.size = opened, 0
	info, err := opened.Stat()
	return info, bare(err)
}

// named adds the path to an error.
func (f *file) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("path %s: %w", f.path, err)
}

// stat reports whether the file exists. It returns an error if the folder does not exist or the
// path is not that of a regular file.
func (f *file) stat() (exists bool, err error) {
	folder := filepath.Dir(f.path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("the folder %s does not exist; create it", folder)
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%s is not a folder", folder)
	}
	switch info, err := os.Stat(f.path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		return true, errors.New("is a folder; name a file in it")
	case !info.Mode().IsRegular():
		return true, fmt.Errorf("is not a regular file; use %q for the program's output", Output)
	}
	return true, nil
}

// endLine ends the file's last line if it has no line end, and returns the file's size.
func endLine(opened *os.File, size int64) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	var last [1]byte
	if _, err := opened.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return size, err
	}
	n, err := opened.Write([]byte("\n"))
	return size + int64(n), err
}

// bare returns an error without the path, which named adds.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// write writes the lines to one file. Lines of a file that another program has moved or removed
// meanwhile are written again.
func (f *file) write(lines []byte) (int, error) {
	n, err := f.append(lines)
	if errors.Is(err, errReplaced) {
		if err := f.open(); err != nil {
			return 0, err
		}
		n, err = f.append(lines)
	}
	if err == nil {
		return n, nil
	}
	f.shut()
	if f.fsync || errors.Is(err, errReplaced) {
		n = 0 // it is unknown what is stored
	}
	return n, f.named(bare(err))
}

func (f *file) append(lines []byte) (int, error) {
	n, err := f.lines.Write(lines)
	if err != nil {
		return n, err
	}
	if f.fsync {
		if err := f.lines.Sync(); err != nil {
			return n, err
		}
	}
	info, err := f.current()
	if err == nil && info.Size() < f.size+int64(n) {
		err = errReplaced // truncated
	}
	if err != nil {
		return n, err
	}
	f.size = info.Size()
	return n, f.syncName(info)
}

// syncName waits until the disk has stored the name of a new file.
func (f *file) syncName(info os.FileInfo) error {
	if !f.fsync || os.SameFile(info, f.synced) {
		return nil
	}
	folder, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	f.synced = info
	return nil
}

func (f *file) close() error {
	if f.lines == nil {
		return nil
	}
	err := f.lines.Close()
	f.lines = nil
	return err
}

// shut closes the file after an error, or when another program has moved it.
func (f *file) shut() { _ = f.close() } // the lines have been judged
