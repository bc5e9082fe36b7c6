package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/require"
)

// image is the last stage of the Dockerfile, with the command that builds its program.
type image struct {
	base, user, folder, build string
	command, health           []string // including the entry point
	files                     map[string]string
}

func dockerfile() (image, error) {
	file, err := os.Open("../Dockerfile")
	if err != nil {
		return image{}, err
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		return image{}, err
	}
	var mistakes []error
	rules := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		mistakes = append(mistakes, fmt.Errorf("%s: %s", rule, message))
	}})
	stages, _, err := instructions.Parse(parsed.AST, rules)
	if err != nil {
		return image{}, err
	}
	made := image{files: make(map[string]string)}
	for _, stage := range stages {
		made.base = stage.BaseName
		for _, command := range stage.Commands {
			switch c := command.(type) {
			case *instructions.RunCommand:
				if line := strings.Join(c.CmdLine, " "); strings.Contains(line, "go build") {
					made.build = line
				}
			case *instructions.UserCommand:
				made.user = c.User
			case *instructions.WorkdirCommand:
				made.folder = c.Path
			case *instructions.CopyCommand:
				if c.From != "" {
					made.files[c.DestPath] = c.SourcePaths[0]
				}
			case *instructions.HealthCheckCommand:
				made.health = c.Health.Test
			case *instructions.EntrypointCommand:
				made.command = append(made.command, c.CmdLine...)
			case *instructions.CmdCommand:
				made.command = append(made.command, c.CmdLine...)
			}
		}
	}
	return made, errors.Join(mistakes...)
}

const builtVersion = "v1.2.3-test"

// buildAsTheDockerfileDoes runs the Dockerfile's build command for a module, but without -trimpath, which would
// compile all dependencies again.
func buildAsTheDockerfileDoes(module, target string) error {
	made, err := dockerfile()
	if err != nil {
		return err
	}
	line := strings.NewReplacer(" -o /waybill ", " -o '"+target+"' ", " -trimpath ", " ").Replace(made.build)
	if line == made.build {
		return fmt.Errorf("the Dockerfile does not build /waybill: %q", made.build)
	}
	command := exec.Command("sh", "-c", line)
	command.Dir = root
	command.Env = append(os.Environ(), "VERSION="+builtVersion, "MODULE="+module)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

func TestTheVersionOfTheBuildIsShown(t *testing.T) {
	t.Parallel()
	out, err := program(t, ".", nil, "version")
	require.NoError(t, err, out)
	require.Regexp(t, `^waybill v1\.2\.3-test `, out)
}

func TestTheImagesRun(t *testing.T) {
	t.Parallel()
	for name := range modules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testImage(t, name)
		})
	}
}

// testImage starts a program in an otherwise empty root directory, as in the image.
func testImage(t *testing.T, name string) {
	made, err := dockerfile()
	require.NoError(t, err)
	require.Equal(t, "scratch", made.base)
	require.Equal(t, "65532:65532", made.user)
	require.Equal(t, map[string]string{"/usr/bin/waybill": "/waybill"}, made.files)
	require.Equal(t, "CMD", made.health[0])
	if os.Getuid() != 0 {
		t.Skip("THE IMAGE IS NOT TESTED: an empty root needs the user root")
	}
	jail, err := os.MkdirTemp(folder, "jail")
	require.NoError(t, err)
	data := filepath.Join(jail, "data")
	for _, made := range []string{filepath.Join(jail, "usr/bin"), filepath.Join(jail, made.folder), data} {
		require.NoError(t, os.MkdirAll(made, 0o755))
	}
	require.NoError(t, os.Chmod(jail, 0o755))
	require.NoError(t, os.Chown(data, 65532, 65532))
	require.NoError(t, os.Link(filepath.Join(folder, name), filepath.Join(jail, "usr/bin/waybill")))
	address := freeAddress(t)
	require.NoError(t, os.WriteFile(filepath.Join(jail, made.folder, "waybill.yaml"), []byte(`
database: sqlite:/data/outbox.db
observe: {address: "`+address+`"}
sinks: {lines: {kind: jsonlines, with: {path: /data/lines}}}
routes: {"*": [lines]}
schedules: {daily: {cron: "0 3 * * *", zone: Europe/Berlin, type: day.began}}
`), 0o644))
	run := func(command []string) *exec.Cmd {
		c := exec.Command(command[0], command[1:]...)
		c.Env, c.Dir = []string{}, made.folder
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: jail, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return c
	}
	// The path is looked up before the root directory changes.
	entry := func(args ...string) []string { return append([]string{made.command[0]}, args...) }
	for _, args := range [][]string{entry("version"), entry("config", "check"), entry("migrate")} {
		out, err := run(args).CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
	}
	forward := run(made.command)
	log := new(strings.Builder)
	forward.Stderr = log
	require.NoError(t, forward.Start())
	defer func() { _ = forward.Process.Kill() }()
	healthy := func() bool { return run(slices.Clone(made.health[1:])).Run() == nil }
	require.Eventually(t, healthy, 2*time.Minute, 50*time.Millisecond, "the image's health check should fail")
	require.Eventually(t, func() bool { return run(entry("health", "--ready")).Run() == nil }, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, forward.Process.Signal(syscall.SIGTERM))
	require.NoError(t, waitFor(forward, 2*time.Minute), log.String())
	require.False(t, healthy())
}

// waitFor waits for a process to end, and kills it after a timeout.
func waitFor(c *exec.Cmd, patience time.Duration) error {
	late, done := context.WithTimeout(context.Background(), patience)
	defer done()
	stop := context.AfterFunc(late, func() { _ = c.Process.Kill() })
	defer stop()
	return c.Wait()
}
