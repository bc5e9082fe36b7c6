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

// fileMode lets the owner write and the group read.
const fileMode = 0o640

// stream is an output that is simply there.
type stream struct {
	to   io.Writer
	torn bool // the last line has no end
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

// file is a file that rotates. Whenever something fails it is closed, so that
// the next open looks at everything again.
type file struct {
	config  Config
	rotated *timberjack.Logger // nil while closed
	synced  os.FileInfo        // the file that its folder is known to keep
}

// check finds what would stand in the way of a line, and leaves everything as it
// is: another program may be writing the file.
func (f *file) check() error {
	exists, err := f.look()
	if err == nil && exists {
		err = f.tryOpen()
	} else if err == nil {
		err = f.tryMake()
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

// tryMake makes another file in the folder: one that is made and removed under the
// path could be the first line's.
func (f *file) tryMake() error {
	made, err := os.CreateTemp(filepath.Dir(f.config.Path), ".waybill-")
	if err != nil {
		return bare(err)
	}
	return errors.Join(made.Close(), os.Remove(made.Name()))
}

// open checks the path, so that its errors name what is wrong, and ends a line
// that was cut short.
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

// named is an error with the path that it is about.
func (f *file) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("path %s: %w", f.config.Path, err)
}

// look says whether the file is there, and refuses what can be none.
func (f *file) look() (exists bool, err error) {
	folder := filepath.Dir(f.config.Path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("the folder %s is not there; make it", folder)
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
		return true, fmt.Errorf("is not an ordinary file, which rotation needs; use %q for the program's output", Output)
	}
	return true, nil
}

func (f *file) prepare() error {
	if _, err := f.look(); err != nil {
		return err
	}
	opened, err := os.OpenFile(f.config.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return bare(err)
	}
	return bare(errors.Join(endLine(opened), opened.Close()))
}

// endLine ends the file's last line if it has no end.
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

// bare is the cause of an error about the path, which is named already.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// write leaves the lines in one file: rotation comes before them, never between.
func (f *file) write(lines []byte) (int, error) {
	n, err := f.rotated.Write(lines)
	if err == nil && f.config.Fsync {
		err = f.sync()
	}
	if err != nil {
		_ = f.close() // the first error is the one to tell
		if f.config.Fsync {
			n = 0 // nothing is known of what the disk has
		}
		return n, fmt.Errorf("path %s: %w", f.config.Path, err)
	}
	return n, nil
}

// sync has the disk keep the lines, and of a new file its name too.
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
