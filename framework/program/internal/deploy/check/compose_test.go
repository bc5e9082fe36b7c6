package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

func compose(t *testing.T) *types.Project {
	t.Helper()
	text, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	absolute, err := filepath.Abs("..")
	require.NoError(t, err)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  absolute,
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: text}},
		Environment: types.Mapping{},
	})
	require.NoError(t, err)
	return project
}

// mounted writes the configs that a service mounts into a folder.
func mounted(t *testing.T, project *types.Project, service string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, mount := range project.Services[service].Configs {
		source := project.Configs[mount.Source]
		text := []byte(source.Content)
		if source.File != "" {
			var err error
			text, err = os.ReadFile(source.File)
			require.NoError(t, err, "the files that compose.yaml names are beside it")
		}
		target := filepath.Join(folder, mount.Target)
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o700))
		require.NoError(t, os.WriteFile(target, text, 0o600))
	}
	return folder
}

func TestTheConfigurationOfTheComposeFileIsRight(t *testing.T) {
	t.Parallel()
	project := compose(t)
	made, err := dockerfile()
	require.NoError(t, err)
	for _, service := range []string{"waybill", "migrate"} {
		s := project.Services[service]
		require.Equal(t, "waybill:dev", s.Image)
		var environ []string
		for name, value := range s.Environment {
			environ = append(environ, name+"="+*value)
		}
		if service == "waybill" {
			out, err := program(t, filepath.Join(mounted(t, project, service), made.folder), environ, "config", "check", "--offline")
			require.NoError(t, err, out)
		}
	}
	require.Equal(t, types.ServiceConditionCompletedSuccessfully, project.Services["waybill"].DependsOn["migrate"].Condition)
}

func TestPrometheusTakesTheConfigurationOfTheComposeFile(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("THE CONFIGURATION OF PROMETHEUS IS NOT TESTED: there is no promtool; it comes with Debian's package prometheus")
	}
	folder := mounted(t, compose(t), "prometheus")
	file := filepath.Join(folder, "etc/prometheus/prometheus.yml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	inside := strings.ReplaceAll(string(text), "/etc/prometheus/", folder+"/etc/prometheus/")
	require.NoError(t, os.WriteFile(file, []byte(inside), 0o600))
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "rules found")
}

func TestServicesOfTheComposeFileListenOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	project := compose(t)
	require.Subset(t, project.ServiceNames(), []string{"postgres", "kafka", "mailpit", "prometheus", "grafana", "migrate", "waybill"})
	for name, s := range project.Services {
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, name)
		}
		require.NotContains(t, s.Image, ":latest", name)
		require.Contains(t, s.Image, ":", name)
	}
	forward := project.Services["waybill"]
	require.True(t, forward.ReadOnly)
	require.Equal(t, []string{"ALL"}, forward.CapDrop)
}
