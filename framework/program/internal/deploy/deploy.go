// Package deploy has what installs and watches the program: files that waybill print prints.
package deploy

import "embed"

// files are the artefacts.
//
//go:embed rules.yaml waybill.service
var files embed.FS

// names are the files, by what waybill print calls them.
var names = map[string]string{
	"rules":   "rules.yaml",
	"systemd": "waybill.service",
}

// Names are the artefacts that there are, with what each is.
func Names() map[string]string {
	return map[string]string{
		"rules":   "alert rules of Prometheus; docs/operations.md has a section for each",
		"systemd": "a hardened unit for waybill forward",
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
