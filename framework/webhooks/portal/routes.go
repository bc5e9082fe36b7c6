package portal

import (
	"context"
	"net/http"
	"strings"
)

// pages are the templates, besides those that all share.
var pages = []string{"list", "form", "endpoint", "secret", "confirm", "attempt", "done", "problem"}

// static is the path of the files that pages load.
const static = "/static/{name}"

// routes has all pages and the API. Where both do the same, they share the handler.
var routes = []route{
	{"GET /{$}", listPage, nil},
	{"GET /new", newPage, nil},
	{"POST /new", createPage, nil},
	{"GET /endpoints/{id}", endpointPage, nil},
	{"GET /endpoints/{id}/edit", editPage, nil},
	{"POST /endpoints/{id}/edit", updatePage, nil},
	{"GET /endpoints/{id}/{act}", confirmPage, nil},
	{"POST /endpoints/{id}/secret", secretPage, nil},
	{"POST /endpoints/{id}/rotate", rotate, nil},
	{"POST /endpoints/{id}/enable", enable, nil},
	{"POST /endpoints/{id}/disable", disable, nil},
	{"POST /endpoints/{id}/delete", remove, nil},
	{"POST /endpoints/{id}/test", test, nil},
	{"POST /endpoints/{id}/recover", recoverDead, nil},
	{"GET /attempts/{id}", getAttempt, nil},
	{"POST /attempts/{id}/resend", resend, nil},
	{"GET " + static, getFile, nil},

	{"GET /api/endpoints", listEndpoints, []string{"after", "limit"}},
	{"POST /api/endpoints", createEndpoint, nil},
	{"GET /api/endpoints/{id}", getEndpoint, nil},
	{"PATCH /api/endpoints/{id}", updateEndpoint, nil},
	{"DELETE /api/endpoints/{id}", remove, nil},
	{"POST /api/endpoints/{id}/rotate", rotate, nil},
	{"POST /api/endpoints/{id}/enable", enable, nil},
	{"POST /api/endpoints/{id}/disable", disable, nil},
	{"POST /api/endpoints/{id}/test", test, nil},
	{"POST /api/endpoints/{id}/recover", recoverDead, nil},
	{"GET /api/endpoints/{id}/attempts", listAttempts, append([]string{"after", "limit"}, attemptFilters...)},
	{"GET /api/attempts/{id}", getAttempt, nil},
	{"POST /api/attempts/{id}/resend", resend, nil},
	{"GET /api/types", listTypes, nil},
	{"GET /api/openapi.json", getFile, nil},
	{"GET /api/openapi.yaml", getFile, nil},
}

func getFile(_ context.Context, r *request) (any, error) {
	f, ok := r.portal.files[strings.TrimPrefix(r.URL.Path, r.portal.Prefix)]
	if !ok {
		return nil, problemOf(http.StatusNotFound, "there is no such file")
	}
	return f, nil
}
