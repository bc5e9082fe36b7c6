package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the path of the repository.
const root = "../../../../.."

// folder has the programs that the tests share, built as in the Dockerfile.
var folder string

// modules are those of the programs, by the names of their packages and images.
var modules = map[string]string{"waybill": ".", "waybill-all": "sinks/all"}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "deploy"); err == nil {
		defer os.RemoveAll(folder)
		for name, module := range modules {
			err = errors.Join(err, buildAsTheDockerfileDoes(module, filepath.Join(folder, name)))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// program runs the built program and returns its output.
func program(t *testing.T, dir string, environ []string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "waybill"), args...)
	command.Dir, command.Env = dir, environ
	if command.Env == nil {
		command.Env = []string{}
	}
	out, err := command.CombinedOutput()
	return string(out), err
}
