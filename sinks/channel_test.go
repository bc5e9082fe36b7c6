package sinks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
)

func TestTheAddressOfATemplateHasNamesForValues(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"orders":                                "orders",
		"shop.{{.Type}}":                        "shop.{Type}",
		"{{ .Metadata.tenant }}.orders":         "{tenant}.orders",
		`{{.Metadata.Get "tenant-id"}}.{{.ID}}`: "{tenant-id}.{ID}",
		`{{.Meta "tenant-id"}}`:                 "{tenant-id}",
		"{{if .Key}}a{{end}}":                   "",
		"{{.Type | printf \"%q\"}}":             "",
		"":                                      "",
	} {
		require.Equal(t, want, sinks.Address(template), template)
	}
}
