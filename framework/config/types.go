package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Type is the contract of a notification type.
type Type struct {
	// File with the JSON Schema (2020-12) of the payloads. {version} in its name stands for the version,
	// as in schemas/order.placed.v{version}.json; without it, the file is that of the version that it names
	// in x-waybill, or of version 1. A program that registers the type has its schema.
	Schema string `yaml:"schema"`
	// File with the Avro schema for sinks that encode the type as Avro, with {version} as above, or for all
	// versions. Default: derived from the JSON Schema.
	Avro string `yaml:"avro"`
	// File with the Protobuf schema (.proto) for sinks that encode the type as Protobuf, with {version} as
	// above, or for all versions.
	Protobuf string `yaml:"protobuf"`
	// Full name of the message in the file of protobuf, such as shop.OrderPlaced. Default: its first message.
	Message string `yaml:"message"`
	// What happens to a notification whose payload does not fit its schema, before it is delivered: refuse
	// (its deliveries are dead), park (they wait for 72 h for another schema, and are then dead) or warn
	// (they are made, and a warning is logged). Default refuse, or no check if the program has the schema.
	OnInvalid OnInvalid `yaml:"on_invalid" enum:"refuse,park,warn"`
}

// OnInvalid is what happens to a payload that does not fit its schema.
type OnInvalid string

// The values of on_invalid.
const (
	OnInvalidRefuse OnInvalid = "refuse"
	OnInvalidPark   OnInvalid = "park"
	OnInvalidWarn   OnInvalid = "warn"
)

// Contracts returns the contracts of the program's types and of those that the file has under types. With
// an error, the set has all but those that it names. Every call returns the same set.
func (c *Config) Contracts() (*contract.Set, error) { return c.contracts() }

// contracts makes the set when it is first needed: many programs need none.
func (l *loader) contracts(c *Config) func() (*contract.Set, error) {
	return sync.OnceValues(func() (*contract.Set, error) {
		set, err := contract.FromTypes(c.options.Types)
		return set, errors.Join(err, c.files.addTo(set))
	})
}

// schemaFiles are the schemas that the files of types have.
type schemaFiles []schemaFile

type schemaFile struct {
	about    contract.About // Version 0 means all versions
	language sinks.SchemaLanguage
	message  string
	text     string
}

func (files schemaFiles) addTo(set *contract.Set) error {
	var problems []error
	for _, f := range files {
		if f.language == sinks.JSONSchema {
			problems = append(problems, set.Add(f.about, []byte(f.text)))
		}
	}
	for _, f := range files {
		if f.language != sinks.JSONSchema {
			problems = append(problems, set.Give(f.about.Type, f.about.Version, f.language, sinks.Schema{Text: f.text, Message: f.message}))
		}
	}
	return errors.Join(problems...)
}

const versionPlaceholder = "{version}"

// checkTypes reads the files of types, and reports mistakes at their lines.
func (l *loader) checkTypes(c *Config) {
	c.contracts = l.contracts(c)
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t, at := c.Types[name], keys.Join("types", name)
		registered := false
		if c.options.Types != nil {
			_, registered = c.options.Types.Lookup(name)
		}
		switch err := notification.ValidateType(name); {
		case err != nil:
			l.mistake(at, "%s: %v", at, err)
			continue
		case registered && t.Schema != "":
			l.mistake(keys.Join(at, "schema"), "%s.schema: the program registers the type and has its schema: leave it out", at)
			continue
		case !registered && t.Schema == "":
			l.mistake(at, "%s.schema is missing: name the file with its JSON Schema", at)
			continue
		case t.Message != "" && t.Protobuf == "":
			l.mistake(keys.Join(at, "message"), "%s.message: names a message in the file of protobuf, which is missing", at)
		}
		l.readSchema(c, name, keys.Join(at, "schema"), t.Schema, sinks.JSONSchema, "")
		l.readSchema(c, name, keys.Join(at, "avro"), t.Avro, sinks.Avro, "")
		l.readSchema(c, name, keys.Join(at, "protobuf"), t.Protobuf, sinks.Protobuf, t.Message)
	}
	if len(c.Types) == 0 || len(l.report.found) > 0 {
		return
	}
	set, err := c.contracts()
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if !set.Knows(name) {
			l.mistake(keys.Join("types", name), "%s: %v", keys.Join("types", name), cmp.Or(set.Failure(name), err))
		}
	}
}

// readSchema reads the file of a type, or that of each version.
func (l *loader) readSchema(c *Config, name, at, path string, language sinks.SchemaLanguage, message string) {
	if path == "" || l.reported(at) {
		return
	}
	versions := map[int]string{0: path}
	if strings.Contains(path, versionPlaceholder) {
		versions = l.filesOfVersions(path)
		if len(versions) == 0 {
			l.mistake(at, "%s: no file is named %s with a version in place of %s", at, path, versionPlaceholder)
		}
	}
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		text, err := os.ReadFile(versions[version])
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = fmt.Errorf("%s: %w", pathErr.Path, pathErr.Err)
		}
		file := schemaFile{contract.About{Type: name, Version: version}, language, message, string(text)}
		if err == nil && language == sinks.JSONSchema {
			if file.about, err = contract.Read(name, version, text); err != nil {
				err = fmt.Errorf("%s: %w", versions[version], err)
			}
		}
		if err != nil {
			l.mistake(at, "%s: %v", at, err)
			continue
		}
		c.files = append(c.files, file)
	}
}

// filesOfVersions returns the files whose names have a version in place of the placeholder. A folder is read
// once.
func (l *loader) filesOfVersions(path string) map[int]string {
	folder, name := filepath.Split(path)
	names, known := l.folders[folder]
	if !known {
		entries, _ := os.ReadDir(cmp.Or(folder, "."))
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		l.folders[folder] = names
	}
	before, after, _ := strings.Cut(name, versionPlaceholder)
	files := make(map[int]string)
	for _, name := range names {
		rest, begins := strings.CutPrefix(name, before)
		number, ends := strings.CutSuffix(rest, after)
		if version, err := strconv.Atoi(number); begins && ends && err == nil && strconv.Itoa(version) == number && version > 0 && version <= notification.MaxVersion {
			files[version] = filepath.Join(folder, name)
		}
	}
	return files
}

// checker checks payloads before they are delivered, for the types that have on_invalid.
type checker struct {
	set    *contract.Set
	rules  map[string]OnInvalid
	warned pace.Decades
	warn   func(string, ...any)
}

// checker returns the check of payloads; nil if no type has one.
func (c *Config) checker() func(context.Context, *notification.Envelope) error {
	check := checker{rules: make(map[string]OnInvalid), warn: c.options.Logger.Warn}
	for name, t := range c.Types {
		rule := t.OnInvalid
		if t.Schema != "" {
			rule = cmp.Or(rule, OnInvalidRefuse)
		}
		if rule == "" {
			continue
		}
		check.rules[name] = rule
		if c.options.Types != nil {
			info, _ := c.options.Types.Lookup(name)
			for _, alias := range append(info.Aliases, info.Name) {
				check.rules[alias] = cmp.Or(c.Types[alias].OnInvalid, rule)
			}
		}
	}
	if len(check.rules) == 0 {
		return nil
	}
	check.set, _ = c.contracts()
	return check.check
}

func (c *checker) check(_ context.Context, e *notification.Envelope) error {
	rule, checked := c.rules[e.Type]
	if !checked {
		return nil
	}
	err := c.set.Check(e)
	switch {
	case err == nil:
		return nil
	case rule == OnInvalidPark, rule == OnInvalidRefuse && errors.Is(err, sinks.ErrNoSchema): // another deployment may know it
		return sinks.Unknown(err)
	case rule == OnInvalidWarn:
		if n, logs := c.warned.Count(); logs {
			c.warn("a payload does not fit its schema, and is delivered all the same", "type", e.Type, "id", e.ID, "error", err, "count", n)
		}
		return nil
	}
	return sinks.Invalid(err)
}
