package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
)

func TestChangesTellWhatARunningForwarderCanTakeOver(t *testing.T) {
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
		"breaker":     of("among: 10", "among: 11"),
		"fairness":    of("fairness: tenant", "fairness: shop"),
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
		"two parts": {of("among: 10", "among: 11", "lease: 1m", "lease: 2m"), config.Changes{Sinks: []string{"partner"}, More: true}},
	} {
		require.Equal(t, c.want, before.ChangesTo(c.after), name)
	}
}

func TestSinksWhoseOwnSettingsAreTheSameAreKept(t *testing.T) {
	t.Parallel()
	of := func(replacements ...string) *config.Config {
		text := strings.NewReplacer(replacements...).Replace(whole)
		c, err := load(t, config.Source{File: write(t, text), Environ: []string{"PASSWORD=" + password, "N=7"}})
		require.NoError(t, err)
		return c
	}
	before, after := of(), of("other.example", "another.example", "among: 10", "among: 11")
	after.Keep(before)
	require.Same(t, before.Sinks["partner"].Sink, after.Sinks["partner"].Sink)
	require.NotSame(t, before.Sinks["other"].Sink, after.Sinks["other"].Sink)
	require.Equal(t, 11, after.Sinks["partner"].Breaker.Among)
}
