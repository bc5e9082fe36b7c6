package encoding_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/waybill-go/waybill/sinks/encoding"
)

// python is an interpreter with Confluent's library, which .ci/test-languages prepares.
const python = "../../.cache/languages/encoding/bin/python"

func TestPythonReadsEachFormat(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		required := slices.Contains(strings.Fields(os.Getenv("WAYBILL_TEST_LANGUAGES")), "encoding")
		require.False(t, required, "%s is missing", python)
		t.Skip("needs Python with Confluent's library; .ci/test-languages prepares it")
	}
	const payload = `{"id": 9007199254740993, "total": 12.5, "note": "für \"Ada\" 😀", "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}]}`
	for format, want := range map[string]string{
		encoding.FormatAvro:       payload,
		encoding.FormatJSONSchema: payload,
		// ProtoJSON has numbers of 64 bits as texts.
		encoding.FormatProtobuf: strings.Replace(payload, "9007199254740993", `"9007199254740993"`, 1),
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			r.Intercept(serialized(t))
			e := newEncoder(t, orders(), r, format)
			encoded, err := e.Encode(t.Context(), "orders", order(payload))
			require.NoError(t, err)
			command := exec.CommandContext(t.Context(), python, "testdata/read.py", r.URL(), format)
			command.Stdin = strings.NewReader(base64.StdEncoding.EncodeToString(encoded))
			var failure bytes.Buffer
			command.Stderr = &failure
			printed, err := command.Output()
			require.NoError(t, err, failure.String())
			require.Equal(t, canonical(t, []byte(want)), canonical(t, printed))
		})
	}
}

// serialized answers requests for the file of orderProto in the binary format, which Confluent's library for
// Python makes, and which the fake registry does not know.
func serialized(t *testing.T) func(http.ResponseWriter, *http.Request) bool {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"order.proto": orderProto}),
	})}
	files, err := compiler.Compile(t.Context(), "order.proto")
	require.NoError(t, err)
	file, err := proto.Marshal(protodesc.ToFileDescriptorProto(files[0]))
	require.NoError(t, err)
	return func(w http.ResponseWriter, request *http.Request) bool {
		if request.URL.Query().Get("format") != "serialized" {
			return false
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"schemaType": "PROTOBUF", "schema": base64.StdEncoding.EncodeToString(file)})
		return true
	}
}
