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
		"rules":      "alert rules of Prometheus; docs/operations.md has a section for each",
		"grafana":    "a dashboard of Grafana over the metrics in Prometheus",
		"systemd":    "a hardened unit for waybill forward",
		"compose":    "a compose file to try it all on one machine",
		"kubernetes": "manifests for Kubernetes, as the Helm chart makes them with its default values",
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
