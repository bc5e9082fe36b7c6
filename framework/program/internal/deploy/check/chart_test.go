package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// cluster has the resources of the manifests.
type cluster struct {
	config     core.ConfigMap
	deployment apps.Deployment
	service    core.Service
	disruption policy.PodDisruptionBudget
	monitor    map[string]any // nil if there is none
}

// decode decodes manifests strictly: unknown fields are errors.
func decode(t *testing.T, text []byte) (c cluster) {
	t.Helper()
	for _, document := range strings.Split(string(text), "\n---\n")[1:] {
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &kind))
		into := map[string]any{
			"v1 ConfigMap": &c.config, "v1 Service": &c.service, "apps/v1 Deployment": &c.deployment,
			"policy/v1 PodDisruptionBudget": &c.disruption, "monitoring.coreos.com/v1 ServiceMonitor": &c.monitor,
		}[kind.APIVersion+" "+kind.Kind]
		require.NotNil(t, into, "%+v", kind)
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), into), document)
	}
	return c
}

func rendered(t *testing.T, values map[string]any) cluster {
	t.Helper()
	text, err := manifests("../chart", values)
	require.NoError(t, err)
	return decode(t, text)
}

func TestTheManifestsAreTheChartWithItsDefaultValues(t *testing.T) {
	t.Parallel()
	wanted, err := manifests("../chart", nil)
	require.NoError(t, err)
	committed, err := os.ReadFile("../kubernetes.yaml")
	require.NoError(t, err)
	require.Equal(t, string(wanted), string(committed), "run go generate in this folder")
}

func TestHelmFindsNothingWrongWithTheChart(t *testing.T) {
	t.Parallel()
	for _, m := range lint.All("../chart", nil, "default", true).Messages {
		require.Less(t, m.Severity, support.WarningSev, m.Error())
	}
}

func TestTheManifestsFitTogether(t *testing.T) {
	t.Parallel()
	c := rendered(t, nil)
	pod := c.deployment.Spec.Template
	require.Equal(t, c.deployment.Spec.Selector.MatchLabels, pod.Labels)
	require.Equal(t, c.service.Spec.Selector, pod.Labels)
	require.Equal(t, c.disruption.Spec.Selector.MatchLabels, pod.Labels)
	require.Equal(t, pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels, pod.Labels)
	require.Equal(t, c.config.Name, pod.Spec.Volumes[0].ConfigMap.Name)
	require.EqualValues(t, 2, *c.deployment.Spec.Replicas)

	made, err := dockerfile()
	require.NoError(t, err)
	forward := pod.Spec.Containers[0]
	require.Equal(t, made.command[1:], forward.Args)
	require.Equal(t, made.folder, forward.VolumeMounts[0].MountPath)
	require.Equal(t, "/livez", forward.LivenessProbe.HTTPGet.Path)
	require.Equal(t, "/readyz", forward.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, forward.Ports[0].Name, forward.ReadinessProbe.HTTPGet.Port.StrVal)
	require.Equal(t, forward.Ports[0].Name, c.service.Spec.Ports[0].TargetPort.StrVal)
	require.Greater(t, *pod.Spec.TerminationGracePeriodSeconds, int64(2*20), "twice the default of forwarder.shutdown_timeout")
	require.Equal(t, "waybill:dev", forward.Image)
}

// TestPodsAreRestricted checks that pods meet the pod security standard "restricted".
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	pod := rendered(t, nil).deployment.Spec.Template.Spec
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.EqualValues(t, 65532, *pod.SecurityContext.RunAsUser)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.False(t, *pod.AutomountServiceAccountToken)
	require.Len(t, pod.InitContainers, 1)
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, container.Name)
		require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, container.Name)
		require.Equal(t, []core.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, container.Name)
		require.False(t, container.Resources.Limits.Memory().IsZero(), container.Name)
	}
}

func TestTheConfigurationOfTheChartIsRight(t *testing.T) {
	t.Parallel()
	c := rendered(t, nil)
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	require.NoError(t, os.WriteFile(file, []byte(c.config.Data["waybill.yaml"]), 0o600))
	environ := []string{"WAYBILL_DATABASE=postgres://app@localhost/app", "PARTNER_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	out, err := program(t, ".", environ, "config", "check", "--offline", "-c", file)
	require.NoError(t, err, out)
	require.Contains(t, c.config.Data["waybill.yaml"], `":8090"`)
	require.EqualValues(t, 8090, c.deployment.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
}

func TestValuesOfTheChartAreHeeded(t *testing.T) {
	t.Parallel()
	c := rendered(t, map[string]any{
		"image":          map[string]any{"repository": "registry.example.com/waybill", "tag": "1.2.3"},
		"replicas":       3,
		"secret":         "orders",
		"migrate":        map[string]any{"secret": "orders-owner"},
		"config":         "database: \"{{ not a template }}\"\nsinks: {}",
		"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
	})
	require.Equal(t, "database: \"{{ not a template }}\"\nsinks: {}", c.config.Data["waybill.yaml"])
	pod := c.deployment.Spec.Template.Spec
	require.Equal(t, "registry.example.com/waybill:1.2.3", pod.Containers[0].Image)
	require.Equal(t, "orders", pod.Containers[0].EnvFrom[0].SecretRef.Name)
	require.Equal(t, "orders-owner", pod.InitContainers[0].EnvFrom[0].SecretRef.Name)
	labels := c.monitor["metadata"].(map[string]any)["labels"].(map[string]any)
	require.Equal(t, "prometheus", labels["release"])
	spec := c.monitor["spec"].(map[string]any)
	require.Equal(t, c.service.Spec.Ports[0].Name, spec["endpoints"].([]any)[0].(map[string]any)["port"])
	usual := rendered(t, nil)
	require.Nil(t, usual.monitor)
	pod = usual.deployment.Spec.Template.Spec
	require.NotEqual(t, pod.Containers[0].EnvFrom[0].SecretRef.Name, pod.InitContainers[0].EnvFrom[0].SecretRef.Name, "forwarders are not the owner")
	require.Empty(t, rendered(t, map[string]any{"migrate": map[string]any{"enabled": false}}).deployment.Spec.Template.Spec.InitContainers)
}

func TestPodsStartAgainWhenTheConfigurationChanges(t *testing.T) {
	t.Parallel()
	sum := func(config string) string {
		return rendered(t, map[string]any{"config": config}).deployment.Spec.Template.Annotations["checksum/config"]
	}
	require.Equal(t, sum("a: 1"), sum("a: 1"))
	require.NotEqual(t, sum("a: 1"), sum("a: 2"))
}

func TestValuesThatTheChartDoesNotHaveAreRefused(t *testing.T) {
	t.Parallel()
	for _, values := range []map[string]any{
		{"replica": 3}, {"replicas": "three"}, {"image": map[string]any{"name": "waybill"}}, {"config": map[string]any{"sinks": nil}}, {"config": ""}, {"secret": ""},
	} {
		_, err := manifests("../chart", values)
		require.ErrorContains(t, err, "values don't meet the specifications", "%v", values)
	}
}

// freeAddress returns a local address at which nothing listens. Its port is below those that systems assign to
// connections and listeners, so that none takes it before it is used.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if listener, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, listener.Close())
			return address
		}
	}
}
