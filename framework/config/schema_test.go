package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/reference"
)

// FuzzSchema checks that the schema accepts every file that Load accepts.
func FuzzSchema(f *testing.F) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Add(whole)
	set := kinds(f)
	var b bytes.Buffer
	require.NoError(f, reference.WriteSchema(&b, set))
	document, err := jsonschema.UnmarshalJSON(&b)
	require.NoError(f, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(f, compiler.AddResource("waybill.schema.json", document))
	schema, err := compiler.Compile("waybill.schema.json")
	require.NoError(f, err)

	f.Fuzz(func(t *testing.T, text string) {
		source := config.Source{File: write(t, text), Environ: []string{"PASSWORD=" + password, "N=7"}}
		if _, err := config.Load(source, config.Options{Kinds: set}); err != nil {
			return
		}
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value))
		asJSON, err := json.Marshal(value)
		if err != nil {
			return // a key that is a number, or a NaN
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(document), text)
	})
}
