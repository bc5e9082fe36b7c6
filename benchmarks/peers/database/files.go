package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// files are the SQLite databases, in a new folder for temporary files.
type files struct {
	folder    string
	templates map[string]string
	next      int
}

func newFiles() (*files, error) {
	folder, err := os.MkdirTemp("", "waybill-peers-*")
	return &files{folder: folder, templates: make(map[string]string)}, err
}

func (f *files) path() string {
	f.next++
	return filepath.Join(f.folder, fmt.Sprintf("%d.db", f.next))
}

// CopyFile is Copy for an SQLite file. It returns the path of the copy.
func (s *Server) CopyFile(ctx context.Context, key string, fill Fill) (path string, drop func() error, err error) {
	template, there := s.files.templates[key]
	if !there {
		template = s.files.path()
		if err := fill(ctx, template); err != nil {
			return "", nil, fmt.Errorf("fill a file with %s: %w", key, err)
		}
		s.files.templates[key] = template
	}
	path = s.files.path()
	if err := copyFile(template, path); err != nil {
		return "", nil, err
	}
	runtime.GC() // so that this run need not collect the garbage of the last one
	return path, func() error {
		return errors.Join(os.Remove(path), os.RemoveAll(path+"-wal"), os.RemoveAll(path+"-shm"))
	}, nil
}

// copyFile copies a file and syncs the copy, so that no run waits for this write.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Sync(), target.Close())
}
