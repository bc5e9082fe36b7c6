package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

func TestChangesListWhatAReloadCanApply(t *testing.T) {
	t.Parallel()
	of := func(replacements ...string) *config.Config {
		text := strings.NewReplacer(replacements...).Replace(whole)
		c, err := load(t, config.Source{File: write(t, text), Environ: []string{"PASSWORD=" + password, "N=7"}})
		require.NoError(t, err)
		return c
	}
	before := of()
	for name, after := range map[string]*config.Config{
		"nothing":  of(),
		"comments": of("sinks:", "# more lines\n\nsinks:", "{url: \"https://other.example/\"}", "{url: 'https://other.example/'}"),
	} {
		require.True(t, before.ChangesTo(after).None(), name)
	}
	for name, after := range map[string]*config.Config{
		"parallelism": of(`"${N}"`, "9"),
		"retry":       of("initial: 2s", "initial: 3s"),
		"a type":      of("{max_attempts: 1}", "{max_attempts: 2}"),
		"rate":        of("50/s", "51/s"),
		"breaker":     of("max_pause: 1m", "max_pause: 2m"),
		"fairness":    of("fairness: tenant", "fairness: shop"),
		"hours":       of("to: 20:00", "to: 21:00"),
	} {
		require.Equal(t, config.Changes{Sinks: []string{"partner"}}, before.ChangesTo(after), name)
	}
	for name, c := range map[string]struct {
		after *config.Config
		want  config.Changes
	}{
		"url":       {of("other.example", "another.example"), config.Changes{Sinks: []string{"other"}}},
		"start":     {of("start: 2026-03-01T01:00:00+01:00", "start: now"), config.Changes{Sinks: []string{"partner"}}},
		"on_dead":   {of("on_dead: halt", "on_dead: continue"), config.Changes{Sinks: []string{"partner"}}},
		"another":   {of("  other: {kind: http", "  other2: {kind: http", "partner, other", "partner, other2"), config.Changes{Sinks: []string{"other", "other2"}, Routes: true}},
		"routes":    {of("[partner, other]", "[partner]"), config.Changes{Routes: true}},
		"lease":     {of("lease: 1m", "lease: 2m"), config.Changes{More: true}},
		"observe":   {of("sinks:\n", "observe: {address: \"127.0.0.1:8090\"}\nsinks:\n"), config.Changes{Observe: true}},
		"two parts": {of("max_pause: 1m", "max_pause: 2m", "lease: 1m", "lease: 2m"), config.Changes{Sinks: []string{"partner"}, More: true}},
	} {
		require.Equal(t, c.want, before.ChangesTo(c.after), name)
	}
}

func TestSinksWithTheSameSettingsAreKept(t *testing.T) {
	t.Parallel()
	of := func(replacements ...string) *config.Config {
		text := strings.NewReplacer(replacements...).Replace(whole)
		c, err := load(t, config.Source{File: write(t, text), Environ: []string{"PASSWORD=" + password, "N=7"}})
		require.NoError(t, err)
		return c
	}
	before, after := of(), of("other.example", "another.example", "max_pause: 1m", "max_pause: 2m")
	after.Keep(before)
	require.Same(t, before.Sinks["partner"].Sink.Sink, after.Sinks["partner"].Sink.Sink)
	require.NotSame(t, before.Sinks["other"].Sink.Sink, after.Sinks["other"].Sink.Sink)
	require.Equal(t, 2*time.Minute, after.Sinks["partner"].Breaker.MaxPause)
}

// reading has the settings of a kind that reads a file or a folder when it builds a sink.
type reading struct {
	From string `yaml:"from" content:"true"`
	TLS  struct {
		File string `yaml:"file" content:"true"`
	} `yaml:"tls"`
}

func (*reading) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

func TestChangedContentsOfFilesAreAChangeOfTheSink(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	link := filepath.Join(folder, "mounted")
	put("v1/order/text.tmpl", "a")
	put("v2/order/text.tmpl", "a")
	require.NoError(t, os.Symlink(filepath.Join(folder, "v1"), link))
	certificate := put("cert.pem", "a")
	set := setOf(t, sinks.NewKind("reading", "", func(_ sinks.Instance, r reading) (sinks.Sink, error) { return &r, nil }))
	file := write(t, fmt.Sprintf(`
database: sqlite:outbox.db
sinks:
  templates: {kind: reading, with: {from: %q}}
  certificates: {kind: reading, with: {tls: {file: %q}}}
  nothing: {kind: reading}
routes: {"*": [templates, certificates, nothing]}
`, link, certificate))
	now := func() *config.Config {
		c, err := config.Load(config.Source{File: file}, config.Options{Kinds: set})
		require.NoError(t, err)
		return c
	}
	before := now()
	changed := func() []string {
		t.Helper()
		after := now()
		sinks := before.ChangesTo(after).Sinks
		after.Keep(before)
		for name, s := range after.Sinks {
			require.Equal(t, !slices.Contains(sinks, name), s.Sink.Sink == before.Sinks[name].Sink.Sink, name)
		}
		before = after
		return sinks
	}
	require.Empty(t, changed())
	put("v1/order/text.tmpl", "b")
	require.Equal(t, []string{"templates"}, changed())
	put("v1/order/html.tmpl", "")
	require.Equal(t, []string{"templates"}, changed(), "another file")
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(filepath.Join(folder, "v2"), link))
	require.Equal(t, []string{"templates"}, changed(), "as when a Kubernetes volume changes")
	put("v2/order/text.tmpl", "a")
	require.Empty(t, changed(), "the same contents written again")
	put("cert.pem", "b")
	require.Equal(t, []string{"certificates"}, changed())
	require.NoError(t, os.Remove(certificate))
	require.Equal(t, []string{"certificates"}, changed())
}
