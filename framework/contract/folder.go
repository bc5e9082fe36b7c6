package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
)

// maxName is how long the part of a file's name before the version may be, in bytes.
const maxName = 200

// FileName returns the name of a version's file, such as order.placed.v2.json. Characters that are not legal
// in file names are escaped as in URLs, and a very long name ends with a digest.
func (a About) FileName() string {
	name := url.PathEscape(a.Type)
	if len(name) > maxName {
		digest := sha256.Sum256([]byte(a.Type))
		name = fmt.Sprintf("%s~%x", name[:maxName-17], digest[:8])
	}
	return fmt.Sprintf("%s.v%d.json", name, a.Version)
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
		if err == nil && bytes.Equal(bytes.ReplaceAll(before, []byte("\r\n"), []byte("\n")), c.Text) {
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
// is not a contract, and [ErrNoContracts] if there is none.
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
		return nil, fmt.Errorf("%s: %w: write them with waybill types export", folder, ErrNoContracts)
	}
	return s, nil
}

func (s *Set) read(path, escaped, number string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(number)
	if err != nil || version > notification.MaxVersion {
		return fmt.Errorf("%w: its version is above %d, the highest that there can be", ErrSchema, notification.MaxVersion)
	}
	typ, err := url.PathUnescape(escaped)
	if said, wrong := aboutIn(document); wrong == nil && said.FileName() == filepath.Base(path) {
		typ, err = said.Type, nil // of which the name may have only the beginning
	}
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
	about, err := aboutIn(document)
	if err != nil {
		return About{}, err
	}
	about.Type = cmp.Or(about.Type, typ)
	about.Version = cmp.Or(about.Version, version, 1)
	switch {
	case about.Version < 1 || about.Version > notification.MaxVersion:
		return About{}, fmt.Errorf("%w: the version in x-waybill is outside 1..%d", ErrSchema, notification.MaxVersion)
	case about.Type != typ || version != 0 && about.Version != version:
		place := typ
		if version != 0 {
			place = About{Type: typ, Version: version}.String()
		}
		return About{}, fmt.Errorf("%w: it is the contract of %s, not of %s: name another file, or correct x-waybill", ErrSchema, about, place)
	}
	_, err = parse(about, document)
	return about, err
}

// aboutIn returns what a schema says of itself in x-waybill; the zero value if it says nothing.
func aboutIn(document []byte) (about About, err error) {
	members, err := membersOf(document)
	if err != nil {
		return About{}, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	for _, m := range members {
		if m.name != keyword {
			continue
		}
		if err := json.Unmarshal(m.value.(json.RawMessage), &about); err != nil {
			return About{}, fmt.Errorf("%w: %s is not what waybill types export writes: remove it, or write the file again", ErrSchema, keyword)
		}
	}
	return about, nil
}
