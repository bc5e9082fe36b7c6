package jsonlines

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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

// file is a file that is rotated. After any error it is closed, so that the next open checks
// everything again.
type file struct {
	config  Config
	rotated *timberjack.Logger // nil while closed
	synced  os.FileInfo        // the file whose name the disk has stored
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

// open checks the path, to return better errors than the library, and ends a line that was cut
// short.
func (f *file) open() error {
	if f.rotated != nil {
		return nil
	}
	if err := f.prepare(); err != nil {
		return f.named(err)
	}
	compression := "none"
	if f.config.Compress {
		compression = "gzip"
	}
	f.rotated = &timberjack.Logger{
		Filename:    f.config.Path,
		MaxSize:     f.config.MaxSizeMB,
		MaxBackups:  f.config.MaxFiles,
		MaxAge:      f.config.MaxAgeDays,
		Compression: compression,
	}
	return nil
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

func (f *file) prepare() error {
	if _, err := f.stat(); err != nil {
		return err
	}
	opened, err := os.OpenFile(f.config.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return bare(err)
	}
	return bare(errors.Join(endLine(opened), opened.Close()))
}

// endLine ends the file's last line if it has no line end.
func endLine(opened *os.File) error {
	info, err := opened.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := opened.ReadAt(last[:], info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = opened.Write([]byte("\n"))
	return err
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
func (f *file) write(lines []byte) (int, error) {
	n, err := f.rotated.Write(lines)
	if err == nil && f.config.Fsync {
		err = f.sync()
	}
	if err != nil {
		_ = f.close() // the first error is returned
		if f.config.Fsync {
			n = 0 // it is unknown what the disk has stored
		}
		return n, fmt.Errorf("path %s: %w", f.config.Path, err)
	}
	return n, nil
}

// sync waits until the disk has stored the lines, and the name of a new file.
func (f *file) sync() error {
	if err := f.rotated.Sync(); err != nil {
		return err
	}
	info, err := os.Stat(f.config.Path)
	if err != nil {
		return fmt.Errorf("another program has removed it: %w", err)
	}
	if os.SameFile(info, f.synced) {
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

func (f *file) close() error {
	if f.rotated == nil {
		return nil
	}
	rotated := f.rotated
	f.rotated = nil
	return rotated.Close()
}
