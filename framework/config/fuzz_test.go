package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
)

// FuzzLoad checks that any file is a valid configuration, or that the error has one mistake per line,
// numbers of lines that exist in the file, and no password from the environment.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(string(text), "15s")
	}
	f.Add(whole, "${")
	set := kinds(f)
	const secret = "correct horse battery staple"
	f.Fuzz(func(t *testing.T, text, lease string) {
		path := write(t, text)
		source := config.Source{File: path, Environ: []string{
			"PASSWORD=" + secret, "WAYBILL_FORWARDER_LEASE=" + lease, "WAYBILL_SINKS_PARTNER_WITH_SECRET=" + secret,
		}}
		c, err := config.Load(source, config.Options{Kinds: set})
		if err == nil {
			require.NotEmpty(t, c.Database.Dialect())
			require.NotEmpty(t, c.Sinks)
			_, err := c.Table()
			require.NoError(t, err, "an accepted configuration works")
			for name, sink := range c.Sinks {
				require.NotNil(t, sink.Sink, name)
			}
			return
		}
		var mistakes *config.Error
		require.ErrorAs(t, err, &mistakes)
		require.NotEmpty(t, mistakes.Mistakes)
		require.NotContains(t, err.Error(), secret)
		for _, m := range mistakes.Mistakes {
			require.False(t, strings.ContainsFunc(m.Text, unicode.IsControl), "%q", m.Text)
			if m.Line > 0 {
				require.Equal(t, path, m.Where)
				require.LessOrEqual(t, m.Line, strings.Count(text, "\n")+strings.Count(text, "\r")+2)
			}
		}
	})
}
