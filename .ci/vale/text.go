// Command text extracts texts that Vale does not find by itself into text files: the string literals
// of Go programs, and the comments of scripts, SQL and configuration files. Each text keeps its line
// number.
//
//	go run .ci/vale/text.go FOLDER FILE...
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	// comments are the patterns of comments, by the end of the file name.
	comments = []struct {
		names   *regexp.Regexp
		comment *regexp.Regexp
	}{
		{regexp.MustCompile(`(^|/)(Makefile|Dockerfile|\.ci/[^/.]+|.*\.(sh|ya?ml|py|service))$`), regexp.MustCompile(`(?:^|\s)##? (.*)`)},
		{regexp.MustCompile(`\.sql$`), regexp.MustCompile(`(?:^|\s)-- (.*)`)},
		{regexp.MustCompile(`\.(ts|js|java)$`), regexp.MustCompile(`(?:^|\s)(?://|/?\*\*?) (.*)`)},
	}
	prose = regexp.MustCompile(`\p{L}{2,} [\p{L}'’-]+,? [\p{L}'’-]{2,}`)
	sql   = regexp.MustCompile(`\b(SELECT|FROM|WHERE|INSERT|VALUES|CREATE|ALTER|DELETE|JOIN|GRANT|RETURNS|PARTITION|UPDATE \w+ SET)\b`)
	verbs = regexp.MustCompile(`%[-+# 0-9.\[\]*]*[a-zA-Z%]`)
)

func main() {
	folder := os.Args[1]
	for _, path := range os.Args[2:] {
		content, err := os.ReadFile(path)
		if err != nil {
			fail(err)
		}
		texts := make([]string, strings.Count(string(content), "\n")+1)
		if strings.HasSuffix(path, ".go") {
			literals(content, texts)
		} else {
			commented(path, content, texts)
		}
		if strings.Join(texts, "") == "" {
			continue
		}
		to := filepath.Join(folder, path+".text.txt")
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			fail(err)
		}
		if err := os.WriteFile(to, []byte(strings.Join(texts, "\n")), 0o644); err != nil {
			fail(err)
		}
	}
}

// literals writes the string literals that are sentences to their lines.
func literals(source []byte, lines []string) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return
		}
		if tok != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal)
		if err != nil {
			fail(err)
		}
		first, raw := file.Line(at)-1, literal[0] == '`'
		for i, line := range strings.Split(text, "\n") {
			if !prose.MatchString(line) || sql.MatchString(line) {
				continue
			}
			if !raw {
				i = 0
			}
			lines[first+i] += verbs.ReplaceAllString(line, "…") + ". "
		}
	}
}

// commented writes the comments of a file to their lines.
func commented(path string, source []byte, lines []string) {
	for _, kind := range comments {
		if !kind.names.MatchString(path) {
			continue
		}
		for i, line := range strings.Split(string(source), "\n") {
			if found := kind.comment.FindStringSubmatch(line); found != nil && prose.MatchString(found[1]) {
				lines[i] = found[1]
			}
		}
		return
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "text:", err)
	os.Exit(1)
}
