package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// FileName returns the name of a version's file, such as order.placed.v2.json. Characters that are not legal
// in file names are escaped as in URLs.
func (a About) FileName() string {
	return fmt.Sprintf("%s.v%d.json", url.PathEscape(a.Type), a.Version)
}

// fileName matches the names that FileName returns.
var fileName = regexp.MustCompile(`^(.+)\.v([1-9]\d*)\.json$`)

// Write writes each contract to its file in a folder, which it creates. The same contracts give the same
// files. It returns the names of the files that were new or have changed. Other files stay.
func (s *Set) Write(folder string) (changed []string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	for _, c := range s.All() {
		path := filepath.Join(folder, c.FileName())
		before, err := os.ReadFile(path)
		if err == nil && bytes.Equal(before, c.Text) {
			continue
		}
		if err := os.WriteFile(path, c.Text, 0o644); err != nil {
			return changed, err
		}
		changed = append(changed, c.FileName())
	}
	return changed, nil
}

// ReadFolder reads the contracts that Write wrote. Its error joins all mistakes: [ErrSchema] for a file that
// is not a contract. A folder without a contract is one.
func ReadFolder(folder string) (*Set, error) {
	s := new(Set)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, entry := range entries {
		parts := fileName.FindStringSubmatch(entry.Name())
		if parts == nil || entry.IsDir() {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if err := s.read(path, parts[1], parts[2]); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if len(s.types) == 0 {
		return nil, fmt.Errorf("%w: %s has no contract, such as order.placed.v1.json: write them with waybill types export", ErrSchema, folder)
	}
	return s, nil
}

func (s *Set) read(path, escaped, number string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	typ, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	version, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	about, err := Read(typ, version, document)
	if err != nil {
		return err
	}
	return s.Add(about, document)
}

// Read returns what a schema says of itself in x-waybill, completed by the type and the version that its
// place says; version 0 means that it says none, and is then 1 unless the schema has one. It fails with
// [ErrSchema] if the document is no JSON Schema, or if it contradicts its place.
func Read(typ string, version int, document []byte) (About, error) {
	var file struct {
		About About `json:"x-waybill"`
	}
	if err := json.Unmarshal(document, &file); err != nil {
		return About{}, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	about := file.About
	about.Type = cmp.Or(about.Type, typ)
	about.Version = cmp.Or(about.Version, version, 1)
	if about.Type != typ || version != 0 && about.Version != version {
		return About{}, fmt.Errorf("%w: it is the contract of %s, not of %s: rename the file, or correct x-waybill", ErrSchema, about, About{Type: typ, Version: version})
	}
	_, err := parse(about, document)
	return about, err
}
