package api

import (
	_ "embed"
	"net/http"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var description []byte

// describe serves the description with the address of this API as its server.
func (a *API) describe(w http.ResponseWriter, r *http.Request) {
	var document map[string]any
	if err := yaml.Unmarshal(description, &document); err != nil {
		a.fail(w, r, err)
		return
	}
	document["servers"] = []any{map[string]any{"url": a.Prefix + "/api/v1"}}
	a.write(w, r, http.StatusOK, "application/json", document)
}
