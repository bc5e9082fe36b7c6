package serializer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/serializer"
)

func TestIsJSONFollowsTheMediaTypeAndItsSuffix(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"application/json":                      true,
		"application/json; charset=utf-8":       true,
		" Application/JSON ;charset=utf-8":      true,
		"text/json":                             true,
		"application/cloudevents+json":          true,
		"application/problem+json;charset=utf8": true,
		"application/vnd.shop.order.v2+json":    true,
		"":                                      false,
		"json":                                  false,
		"+json":                                 false,
		"application/+json":                     false,
		"/order+json":                           false,
		"application/jsonlines":                 false,
		"application/x-ndjson":                  false,
		"application/json-seq":                  false,
		"application/protobuf":                  false,
		"application/order+json+zip":            false,
		"text/plain; as=application/json":       false,
	} {
		require.Equal(t, want, serializer.IsJSON(contentType), "%q", contentType)
	}
}

func TestAcceptsItsOwnContentTypeInAnySpelling(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"application/json":                true,
		"APPLICATION/JSON; charset=utf-8": true,
		"application/protobuf":            false,
		"application/order+json":          false,
		"":                                false,
	} {
		require.Equal(t, want, serializer.Accepts(serializer.JSON{}, contentType), "%q", contentType)
	}
}

func TestAcceptsTheContentTypesOfAnAccepter(t *testing.T) {
	t.Parallel()
	require.True(t, serializer.Accepts(lenient{}, "Text/JSON; charset=utf-8"))
	require.True(t, serializer.Accepts(lenient{}, "application/json"))
	require.False(t, serializer.Accepts(lenient{}, "text/plain"))
}

// lenient is JSON that also accepts an older name.
type lenient struct{ serializer.JSON }

func (lenient) Accepts(mediaType string) bool { return mediaType == "text/json" }
