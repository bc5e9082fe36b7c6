// Package deploy has what installs and watches the program: files that waybill print prints, and
// others that packages of it are made from. kubernetes.yaml is made from the Helm chart in chart;
// the module check judges the files with the libraries of the tools that read them.
package deploy

import "embed"

// files are the artefacts.
//
//go:embed rules.yaml grafana.json waybill.service compose.yaml kubernetes.yaml
var files embed.FS

// names are the files, by what waybill print calls them.
var names = map[string]string{
	"rules":      "rules.yaml",
	"grafana":    "grafana.json",
	"systemd":    "waybill.service",
	"compose":    "compose.yaml",
	"kubernetes": "kubernetes.yaml",
}

// Names are the artefacts that there are, with what each is.
func Names() map[string]string {
	return map[string]string{
		"rules":      "alert rules for Prometheus; docs/operations.md has a section for each",
		"grafana":    "a Grafana dashboard of the metrics in Prometheus",
		"systemd":    "a hardened systemd unit for waybill forward",
		"compose":    "a Compose file to try everything on one machine",
		"kubernetes": "Kubernetes manifests, rendered from the Helm chart with its default values",
	}
}

// Text is an artefact; false if there is none of that name.
func Text(name string) (string, bool) {
	file, known := names[name]
	if !known {
		return "", false
	}
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text), true
}
