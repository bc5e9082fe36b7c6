package email

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// errOutside means that a symbolic link leads out of the folder of the templates.
var errOutside = errors.New("leads out of the folder of the templates")

// confined is a folder on disk with what is below it. It follows symbolic links that stay inside, and
// refuses others: every file of the folder can become an attachment.
type confined string

// Open opens a file or folder.
func (c confined) Open(name string) (fs.File, error) {
	root, err := filepath.EvalSymlinks(string(c))
	if err != nil {
		return nil, err
	}
	file, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	if below, err := filepath.Rel(root, file); err != nil || !fs.ValidPath(name) || !filepath.IsLocal(below) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errOutside}
	}
	return os.Open(file)
}
