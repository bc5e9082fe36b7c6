package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseDocument parses YAML. It returns nil for an empty document, and for a broken one, which
// it reports.
func parseDocument(text []byte, r *report) *yaml.Node {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		reportSyntax(err, text, r)
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.add(r.file, second.Line, "a second YAML document begins here: a configuration is one document")
		return nil
	}
	return document.Content[0]
}

var (
	syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	// The yaml package counts lines from 0 in errors of its parser, which match this, and from
	// 1 in errors of its scanner.
	countsFromZero = regexp.MustCompile(`^did not find expected (<|node content|'-'|key|',')`)
)

// reportSyntax reports a syntax error. The parser's errors quote nothing of the file except the
// names of anchors.
func reportSyntax(err error, text []byte, r *report) {
	m := syntaxError.FindStringSubmatch(err.Error())
	if m == nil {
		r.add(r.file, 0, "is not YAML")
		return
	}
	if anchor, ok := strings.CutPrefix(m[2], "unknown anchor '"); ok {
		// A password that begins with an asterisk looks like this.
		anchor = strings.TrimSuffix(anchor, "' referenced")
		r.add(r.file, lineOf(text, "*"+anchor), "a value begins with * but names no anchor; put it in quotes")
		return
	}
	line, _ := strconv.Atoi(m[1])
	if countsFromZero.MatchString(m[2]) {
		line++
	}
	r.add(r.file, line, "is not YAML: %s", m[2])
}

// lineOf returns the line of the first occurrence of a text; 0 if there is none.
func lineOf(text []byte, what string) int {
	before, _, found := bytes.Cut(text, []byte(what))
	if !found {
		return 0
	}
	return bytes.Count(before, []byte("\n")) + 1
}

// entry is a key and its value in a mapping.
type entry struct {
	key   *yaml.Node
	value *yaml.Node
}

// follow returns the node that an alias refers to, and nil for null, because a key without a
// value is the same as no key.
func follow(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node != nil && node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return nil
	}
	return node
}

// nameOf returns a node's kind in plain words.
func nameOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}
