package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// contentsOf returns digests of the files and folders in fields with the tag content:"true",
// which are read when the sink is built. So a changed template counts as a changed
// configuration. If a file cannot be read, the error is its digest.
func contentsOf(settings any) map[string]string {
	digests := make(map[string]string)
	collectContents(reflect.ValueOf(settings), digests)
	return digests
}

func collectContents(v reflect.Value, digests map[string]string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			collectContents(v.Elem(), digests)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			switch {
			case !field.IsExported():
			case field.Tag.Get("content") == "true" && v.Field(i).Kind() == reflect.String && v.Field(i).String() != "":
				digests[v.Field(i).String()] = digest(v.Field(i).String())
			default:
				collectContents(v.Field(i), digests)
			}
		}
	}
}

// digest returns the digest of a file, or of all files below a folder with their names.
func digest(path string) string {
	sum := sha256.New()
	root, err := filepath.EvalSymlinks(path) // Kubernetes mounts files as links
	if err == nil {
		err = filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return addFile(sum, root, name)
		})
	}
	if err != nil {
		return err.Error()
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// addFile adds the name and content of a file below root, or of the file that a link points to.
// It ignores folders.
func addFile(sum io.Writer, root, name string) error {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(sum, "%q %d\n", name[len(root):], info.Size())
	_, err = io.Copy(sum, file)
	return err
}
