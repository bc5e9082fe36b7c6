// Command check writes the Kubernetes manifests of the Helm chart with its default values. Its tests
// check the artifacts of the parent folder with the libraries of the tools that read them. It is a
// separate module, so that nothing else depends on these libraries.
package main

import (
	"bytes"
	"fmt"
	"os"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

//go:generate go run . ../kubernetes.yaml

const header = `# Generated from the Helm chart with its default values, for kubectl apply -f. Change the ConfigMap and
# the image, and create the Secret waybill first: docs/deployment.md explains how.
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "name the file to write")
		os.Exit(2)
	}
	text, err := manifests("../chart", nil)
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// manifests returns the manifests of a chart, in the order in which Helm installs them.
func manifests(folder string, values map[string]any) ([]byte, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "waybill", Namespace: "default", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	_, sorted, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	text := bytes.NewBufferString(header)
	for _, m := range sorted {
		fmt.Fprintf(text, "---\n%s\n", bytes.TrimSpace([]byte(m.Content)))
	}
	return text.Bytes(), nil
}
