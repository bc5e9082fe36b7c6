package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/aws/awstest"
)

// block is a fenced block of the page.
var block = regexp.MustCompile("(?ms)^```(yaml|sh|text)\n(.*?)^```$")

func blocks(t *testing.T) [][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docs, "sinks-aws.md"))
	require.NoError(t, err)
	return block.FindAllStringSubmatch(string(page), -1)
}

// folder returns an empty folder that has the program waybill.
func folder(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(program, filepath.Join(dir, "waybill")))
	return dir
}

// runScript runs a script of bash in a folder, and returns what it writes to standard output.
func runScript(t *testing.T, dir, script string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	var errors strings.Builder
	command.Stderr = &errors
	output, err := command.Output()
	require.NoError(t, err, "%s\n%s\n%s", script, output, errors.String())
	return string(output)
}

func TestTheRecipeOfThePage(t *testing.T) {
	server := strings.TrimPrefix(awstest.Moto(t), "http://")
	dir := folder(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "aws", "bin"), 0o700))
	python := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", awstest.Interpreter(t, "boto3"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "aws", "bin", "python"), []byte(python), 0o700)) //nolint:gosec // it is executed

	script, want := "trap 'kill %1; wait' EXIT\n", ""
	for _, b := range blocks(t) {
		text := strings.ReplaceAll(b[2], "127.0.0.1:5000", server)
		switch b[1] {
		case "yaml": // the last one is that of the recipe
			require.NoError(t, os.WriteFile(filepath.Join(dir, "waybill.yaml"), []byte(text), 0o600))
		case "sh":
			script += text
		case "text":
			want += text
		}
	}
	require.NotEmpty(t, want)
	got := runScript(t, dir, script)
	require.True(t, strings.HasSuffix(got, want), got)
}
