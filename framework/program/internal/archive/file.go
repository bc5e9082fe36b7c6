package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// file is a file that is written as .NAME.*.tmp in the same folder. A killed process leaves this file
// behind.
type file struct {
	*os.File
	path string
}

// create creates a file that only this user may read, since it contains payloads.
func create(path string) (*file, error) {
	if err := vacant(path); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, err
	}
	return &file{f, path}, nil
}

// vacant refuses an existing name: the older file may have rows that retention has removed since.
func vacant(path string) error {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return fmt.Errorf("%s: %w: an export does not replace files; choose another name, or remove the file", path, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

func (f *file) commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = vacant(f.path)
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if folder, err := os.Open(filepath.Dir(f.path)); err == nil {
		_ = folder.Sync() // writes the name to the disk, if the system supports it
		_ = folder.Close()
	}
	return nil
}

func (f *file) discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
