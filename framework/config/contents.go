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

// contentsOf digests the files and folders that a kind's settings name and that are read
// when the sink is made: fields with the tag content:"true". So a changed template is a
// change of the configuration. What cannot be read is told apart by its error.
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

// digest is that of a file, or of all files below a folder with their names.
func digest(path string) string {
	sum := sha256.New()
	root, err := filepath.EvalSymlinks(path) // what is mounted into a container is a link
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

// addFile adds a file below root, or what a link there leads to; nothing of a folder.
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
