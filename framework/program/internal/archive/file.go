package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// file is written beside its place under another name: .NAME.*.tmp. A process that is
// killed leaves that behind.
type file struct {
	*os.File
	path string
}

// create makes a file that only this user may read: payloads are in it.
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

// vacant refuses a name that is taken: what retention took since is only in the older
// file.
func vacant(path string) error {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return fmt.Errorf("%s: %w: an export replaces no file, choose another name or remove it", path, fs.ErrExist)
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
		_ = folder.Sync() // the name is on the disk too, where the system can do that
		_ = folder.Close()
	}
	return nil
}

func (f *file) discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
