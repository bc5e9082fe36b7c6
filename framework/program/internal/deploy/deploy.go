// Package deploy has the files for deployment and monitoring: some are printed by waybill print, and
// packages are made from the others. kubernetes.yaml is generated from the Helm chart in chart. The
// module check tests the files with the libraries of the tools that read them.
package deploy

import "embed"

//go:embed rules.yaml grafana.json waybill.service compose.yaml kubernetes.yaml
var files embed.FS

// names maps the arguments of waybill print to files.
var names = map[string]string{
	"rules":      "rules.yaml",
	"grafana":    "grafana.json",
	"systemd":    "waybill.service",
	"compose":    "compose.yaml",
	"kubernetes": "kubernetes.yaml",
}

// Names returns the artifacts, each with a description.
func Names() map[string]string {
	return map[string]string{
		"rules":      "alert rules for Prometheus; docs/operations.md explains each",
		"grafana":    "a Grafana dashboard for the metrics in Prometheus",
		"systemd":    "a hardened systemd unit for waybill forward",
		"compose":    "a Compose file to try everything on one machine",
		"kubernetes": "Kubernetes manifests, rendered from the Helm chart with its default values",
	}
}

// Text returns an artifact; false if there is none with this name.
func Text(name string) (string, bool) {
	file, known := names[name]
	if !known {
		return "", false
	}
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // cannot happen: the file is embedded
	}
	return string(text), true
}
