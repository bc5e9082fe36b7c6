package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is a defect that can be planted.
type mutant struct {
	name   string
	patch  string // path of its file; "": the product itself
	head   string // the lines before the diff
	defect string // what is wrong
	file   string // that it changes, below the folder of the module
	suite  suite  // should notice it
}

// readAll reads the patches whose whole name one of the regular expressions matches, in the order of their names; all
// if there is none.
func readAll(root string, names []string) (mutants []mutant, err error) {
	pattern, err := regexp.Compile("^(?:" + strings.Join(names, "|") + ")$")
	root, unknown := filepath.Abs(root)
	if err = errors.Join(err, unknown); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "framework/internal/mutants/patches/*.patch"))
	for _, file := range files {
		m, failed := read(file)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", file, failed))
		}
		if len(names) == 0 || pattern.MatchString(m.name) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		err = errors.Join(err, fmt.Errorf("%s has no mutant %s", root, strings.Join(names, " or ")))
	}
	return mutants, err
}

func read(file string) (m mutant, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	head, diff, _ := strings.Cut(string(text), "diff --git ")
	changed := regexp.MustCompile(`\n\+\+\+ b/(.+)\n@@ `).FindStringSubmatch(diff)
	if changed == nil || strings.Count(diff, "\n+++ ") > 1 || strings.Count(diff, "\n@@ ") > 1 {
		return m, errors.New("it must change one place of one file, as a diff of git below a head")
	}
	m = mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch"), patch: file, head: head, file: changed[1]}
	fields := map[string]*string{"Defect": &m.defect, "Package": &m.suite.pkg, "Run": &m.suite.tests, "Env": &m.suite.env}
	for line := range strings.Lines(head) {
		name, value, _ := strings.Cut(line, ":")
		if fields[name] == nil {
			return m, fmt.Errorf("the line %q of its head is none of Defect, Package, Run and Env", line)
		}
		*fields[name] = strings.TrimSpace(value)
	}
	if m.defect == "" || m.suite.pkg == "" {
		return m, errors.New("its head must say Defect and Package")
	}
	return m, nil
}

// plant puts copies of the file into two folders, a and b, and the defect into that of b. exact means that all lines
// around the place must be as in the patch, otherwise one line must.
func (m mutant) plant(ctx context.Context, root, folder string, exact bool) (planted string, err error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	for _, copied := range []string{"a", "b"} {
		planted = filepath.Join(folder, copied, m.file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(planted), 0o700))
		err = errors.Join(err, os.WriteFile(planted, text, 0o600))
	}
	if err != nil {
		return "", err
	}
	around := "-C1"
	if exact {
		around = "-C3"
	}
	if _, err = git(ctx, filepath.Join(folder, "b"), "apply", around, m.patch); err != nil {
		err = fmt.Errorf("%s does not fit any more, -renew may repair it, otherwise plant it again: %w", m.name, err)
	}
	return planted, err
}

// renew writes the patch again if its place or what is around it has changed.
func (m mutant) renew(ctx context.Context, root string) (renewed bool, err error) {
	folder, err := os.MkdirTemp("", "waybill-mutant-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(folder)
	if _, err := m.plant(ctx, root, folder, false); err != nil {
		return false, err
	}
	diff, err := git(ctx, folder, "diff", "--no-index", "--no-prefix", "a/"+m.file, "b/"+m.file)
	if diff == "" {
		return false, fmt.Errorf("%s changes nothing: %w", m.name, err)
	}
	before, err := os.ReadFile(m.patch)
	if err != nil || m.head+diff == string(before) {
		return false, err
	}
	return true, os.WriteFile(m.patch, []byte(m.head+diff), 0o644)
}

// run plants the defect and runs the suite.
func (m mutant) run(ctx context.Context, root string, limit time.Duration) (outcome, why string) {
	if m.patch == "" {
		return m.suite.run(ctx, root, "", limit)
	}
	folder, err := os.MkdirTemp("", "waybill-mutant-")
	if err != nil {
		return failed, err.Error()
	}
	defer os.RemoveAll(folder)
	planted, err := m.plant(ctx, root, folder, true)
	original, unknown := filepath.Abs(filepath.Join(root, m.file))
	text, encoding := json.Marshal(map[string]any{"Replace": map[string]string{original: planted}})
	overlay := filepath.Join(folder, "overlay.json")
	if err = errors.Join(err, unknown, encoding, os.WriteFile(overlay, text, 0o600)); err != nil {
		return failed, err.Error()
	}
	return m.suite.run(ctx, root, overlay, limit)
}

// git runs git in a folder as if it were in no repository, and returns what it prints.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	var complaints bytes.Buffer
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir, command.Stderr = folder, &complaints
	command.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	printed, err := command.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, complaints.String())
	}
	return string(printed), err
}
