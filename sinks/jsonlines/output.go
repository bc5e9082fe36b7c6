package jsonlines

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/DeRuina/timberjack"
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

// file is a file that is rotated, by this sink or by another program: before and after each
// write, the file at the path is compared with the open one. After any error it is closed, so
// that the next open checks everything again.
type file struct {
	config  Config
	lines   *os.File           // nil while closed
	size    int64              // of lines after the last write; another program may change it
	synced  os.FileInfo        // the file whose name the disk has stored
	rotator *timberjack.Logger // renames, compresses and deletes, but writes no line; nil while closed
	retired sync.WaitGroup     // earlier rotators, which may still compress
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
	opened, err := os.OpenFile(f.config.Path, os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return bare(err)
	}
	return opened.Close()
}

// tryCreate creates and removes another file in the folder. It does not use the path, where
// another call may have just written its first line.
func (f *file) tryCreate() error {
	created, err := os.CreateTemp(filepath.Dir(f.config.Path), ".waybill-")
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
	atPath, err := os.Stat(f.config.Path)
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
	opened, err := os.OpenFile(f.config.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return nil, bare(err)
	}
	f.lines, f.size = opened, 0
	info, err := opened.Stat()
	if err == nil && info.Size() < f.maxSize() {
		_, err = f.rotation().Write(nil) // makes it look for old files
	}
	return info, bare(err)
}

func (f *file) maxSize() int64 { return int64(f.config.MaxSizeMB) << 20 }

func (f *file) rotation() *timberjack.Logger {
	if f.rotator != nil {
		return f.rotator
	}
	f.retired.Wait() // two must not compress the same file
	compression := "none"
	if f.config.Compress {
		compression = "gzip"
	}
	f.rotator = &timberjack.Logger{
		Filename:    f.config.Path,
		MaxSize:     f.config.MaxSizeMB,
		MaxBackups:  f.config.MaxFiles,
		MaxAge:      f.config.MaxAgeDays,
		Compression: compression,
	}
	return f.rotator
}

// rotate renames the file and begins a new one.
func (f *file) rotate() error {
	err := f.lines.Close()
	f.lines = nil
	if err == nil {
		err = f.rotation().Rotate()
	}
	if err == nil {
		_, err = f.reopen()
	}
	return err
}

// named adds the path to an error.
func (f *file) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("path %s: %w", f.config.Path, err)
}

// stat reports whether the file exists. It returns an error if the folder does not exist or the
// path is not that of a regular file.
func (f *file) stat() (exists bool, err error) {
	folder := filepath.Dir(f.config.Path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("the folder %s does not exist; create it", folder)
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%s is not a folder", folder)
	}
	switch info, err := os.Stat(f.config.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		return true, errors.New("is a folder; name a file in it")
	case !info.Mode().IsRegular():
		return true, fmt.Errorf("is not a regular file, which rotation needs; use %q for the program's output", Output)
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

// write writes the lines to one file. Rotation may happen before them, but not between them.
// Lines that another program has removed meanwhile are written again.
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
	if f.config.Fsync || errors.Is(err, errReplaced) {
		n = 0 // it is unknown what is stored
	}
	return n, f.named(bare(err))
}

func (f *file) append(lines []byte) (int, error) {
	if f.size > 0 && f.size+int64(len(lines)) > f.maxSize() {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.lines.Write(lines)
	if err != nil {
		return n, err
	}
	if f.config.Fsync {
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
	if !f.config.Fsync || os.SameFile(info, f.synced) {
		return nil
	}
	folder, err := os.Open(filepath.Dir(f.config.Path))
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	f.synced = info
	return nil
}

// close closes the file, and waits for running compressions.
func (f *file) close() error {
	var err error
	if f.lines != nil {
		err = f.lines.Close()
		f.lines = nil
	}
	f.shut()
	f.retired.Wait()
	return err
}

// shut closes the file after an error, or when another program has moved it.
func (f *file) shut() {
	if f.lines != nil {
		_ = f.lines.Close() // the lines have been judged
		f.lines = nil
	}
	if rotator := f.rotator; rotator != nil {
		f.rotator = nil
		f.retired.Go(func() { _ = rotator.Close() })
	}
}
