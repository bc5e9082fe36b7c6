package aws_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/eventbridge"
	"github.com/waybill-go/waybill/sinks/aws/kinesis"
	"github.com/waybill-go/waybill/sinks/aws/sns"
	"github.com/waybill-go/waybill/sinks/aws/sqs"
)

// TestMain is also the program waybill with the kinds of this module, if it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "waybill" {
		program.Main(program.Kinds(sqs.Kind(), sns.Kind(), eventbridge.Kind(), kinesis.Kind()))
	}
	os.Exit(awstest.Main(m))
}

// block is a fenced block of the page.
var block = regexp.MustCompile("(?ms)^```(yaml|sh|text)\n(.*?)^```$")

func blocks(t *testing.T) [][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/sinks-aws.md")
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

// run runs a script of bash in a folder, and returns what it writes to standard output.
func run(t *testing.T, dir, script string) string {
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

func TestTheConfigurationsOfThePageAreValid(t *testing.T) {
	dir, found := folder(t), 0
	for _, b := range blocks(t) {
		if b[1] != "yaml" {
			continue
		}
		found++
		require.NoError(t, os.WriteFile(filepath.Join(dir, "waybill.yaml"), []byte(b[2]), 0o600))
		run(t, dir, "waybill config check --offline")
	}
	require.Equal(t, 2, found)
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
	got := run(t, dir, script)
	require.True(t, strings.HasSuffix(got, want), got)
}
