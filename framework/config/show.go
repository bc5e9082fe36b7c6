package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Show returns the configuration in effect as YAML: the file with variables applied and defaults
// filled in. Secrets are masked, and a value from ${NAME} or a file is shown as that reference,
// without its default. Errors are those of [Load].
func Show(source Source, options Options) ([]byte, error) {
	c, err := Load(source, options)
	if err != nil {
		return nil, err
	}
	return c.Show()
}

// Show returns a configuration that [Load] has returned as YAML; see the function [Show]. It must
// not be called concurrently.
func (c *Config) Show() ([]byte, error) {
	if c.loader == nil {
		return nil, errors.New("only a configuration that Load has returned can be shown")
	}
	c.loader.nodes = 0 // the settings of the sinks are decoded again
	s := &show{loader: c.loader, settings: make(map[string]any)}
	for name, sink := range c.Sinks {
		s.addSettings(sink, keys.Join("sinks", name)+".with", c.options.Kinds)
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(s.node(reflect.ValueOf(c.withDefaults()), "")); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return b.Bytes(), encoder.Close()
}

// Defaults returns a configuration with all defaults.
func Defaults() *Config {
	c := Config{Database: Database{dialect: PostgreSQL}, Sinks: map[string]Sink{"": {}}, Types: map[string]Type{"": {}}, Schedules: map[string]Schedule{"": {}}}
	c.Observe.Auth = settings.Auth{Users: map[string]settings.Login{"": {}}, Tokens: map[string]settings.Token{"": {}}}
	filled := c.withDefaults()
	filled.Database, filled.Forwarder.Name = Database{}, "" // these have no fixed default
	return &filled
}

// withDefaults returns a copy with defaults filled in.
func (c *Config) withDefaults() Config {
	filled := *c
	o, f := &filled.Outbox, &filled.Forwarder
	its := c.ForwarderConfig(nil).WithDefaults()
	o.Prefix = cmp.Or(o.Prefix, store.DefaultPrefix)
	o.Lanes = its.Lanes
	o.Payload = cmp.Or(o.Payload, PayloadJSON)
	o.Retention = cmp.Or(o.Retention, &its.Retention)
	if its.InboxRetention == forwarder.KeepForever {
		its.InboxRetention = 0
	}
	o.InboxRetention = cmp.Or(o.InboxRetention, &its.InboxRetention)
	f.Config = its
	if listen := true; c.Database.Dialect() == PostgreSQL {
		f.Listen = cmp.Or(f.Listen, &listen)
	}
	if c.HasFleet() {
		filled.Fleet = c.Fleet.WithDefaults()
	}
	filled.Schedules = make(map[string]Schedule, len(c.Schedules))
	for name, s := range c.Schedules {
		s.Missed = cmp.Or(s.Missed, schedule.One)
		filled.Schedules[name] = s
	}
	filled.Sinks = make(map[string]Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		filled.Sinks[name] = sink.withDefaults()
	}
	filled.Alerts, filled.Observe = c.Alerts.WithDefaults(), c.Observe.WithDefaults()
	return filled
}

// show converts a loaded configuration to YAML.
type show struct {
	*loader
	settings map[string]any // settings of kinds, by the path of with
}

// addSettings decodes a sink's settings again. Defaults are set before and after the first
// decoding, because some depend on what the user has set.
func (s *show) addSettings(sink Sink, at string, kinds *sinks.Set) {
	kind, _ := kinds.Kind(sink.Kind)
	settings := kind.Config()
	s.decode(sink.With.node, reflect.ValueOf(settings).Elem(), at)
	if d, ok := settings.(sinks.Defaulter); ok {
		d.SetDefaults()
		s.decode(sink.With.node, reflect.ValueOf(settings).Elem(), at)
	}
	s.settings[at] = settings
}

// node returns a value as YAML; nil if it is neither set nor has a default.
func (s *show) node(v reflect.Value, path string) *yaml.Node {
	isItem := strings.HasSuffix(path, "]") // items of lists are always shown
	if v.IsZero() && v.Kind() != reflect.Bool && v.Type() != reflect.TypeFor[With]() && !s.given(path) && !isItem {
		return nil
	}
	return s.present(v, path)
}

func (s *show) present(value reflect.Value, path string) *yaml.Node {
	v := reflect.New(value.Type()).Elem() // addressable, for isScalar
	v.Set(value)
	typed, fromOutside := s.typed[path]
	switch {
	case fromOutside:
		return textNode(s.secrecyOf(path).MaskedReference(typed))
	case v.Type() == reflect.TypeFor[With]():
		return s.present(reflect.ValueOf(s.settings[path]).Elem(), path)
	case keys.IsScalar(v):
		return scalarNode(v, s.secrecyOf(path))
	case (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && !v.IsNil():
		return s.present(v.Elem(), path)
	case v.Kind() == reflect.Struct:
		return s.structNode(v, path)
	case v.Kind() == reflect.Map:
		return s.mapNode(v, path)
	case v.Kind() == reflect.Slice:
		return s.listNode(v, path)
	}
	return nil
}

func (s *show) structNode(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	fields := keys.Of(v)
	if short := slices.IndexFunc(fields, keys.Field.IsShort); short >= 0 && onlyOne(fields, short) {
		return s.present(fields[short].Value, path)
	}
	for _, f := range fields {
		if below := s.node(f.Value, keys.Join(path, f.Name)); below != nil {
			n.Content = append(n.Content, textNode(f.Name), below)
		}
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

// onlyOne reports whether all other fields are zero.
func onlyOne(fields []keys.Field, one int) bool {
	for i, f := range fields {
		if i != one && !f.Value.IsZero() {
			return false
		}
	}
	return true
}

func (s *show) mapNode(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	names := slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
		return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	for _, key := range names {
		if below := s.node(v.MapIndex(key), keys.Join(path, fmt.Sprint(key))); below != nil {
			n.Content = append(n.Content, textNode(fmt.Sprint(key)), below)
		}
	}
	if len(n.Content) == 0 {
		return nil
	}
	return n
}

func (s *show) listNode(v reflect.Value, path string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i := range v.Len() {
		at := fmt.Sprintf("%s[%d]", path, i)
		item := s.node(v.Index(i), at)
		if item == nil {
			item = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		n.Content = append(n.Content, item)
	}
	return n
}

// scalarNode returns a single value that has no references.
func scalarNode(v reflect.Value, is secret.Secrecy) *yaml.Node {
	if text, ok := textOf(v); ok {
		return textNode(escaped(is.Masked(text)))
	}
	n := new(yaml.Node)
	if err := n.Encode(v.Interface()); err != nil || n.Kind != yaml.ScalarNode {
		return textNode(secret.Mask) // it might be secret
	}
	if shown := is.Masked(n.Value); shown != n.Value {
		return textNode(shown)
	}
	return n
}

// textOf returns a value as the user writes it; false if it is not a text.
func textOf(v reflect.Value) (string, bool) {
	switch value := v.Interface().(type) {
	case Database:
		return value.Address(), true
	case time.Duration:
		return duration.Text(value), true
	case fmt.Stringer:
		return value.String(), true
	}
	return v.String(), v.Kind() == reflect.String
}

func textNode(value string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(value)
	return n
}

// escaped escapes what would be read as a reference.
func escaped(value string) string {
	if rest, ok := strings.CutPrefix(value, filePrefix); ok {
		value = filePrefix + ":" + rest
	}
	return strings.ReplaceAll(value, "$", "$$")
}
