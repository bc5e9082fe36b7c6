package config_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/privacy"
)

// cloudKey is a master key that cannot be compared.
type cloudKey struct{ call func() }

func (cloudKey) Wrap(_ context.Context, key, _ []byte) ([]byte, string, error) {
	return key, "cloud", nil
}

func (cloudKey) Unwrap(_ context.Context, wrapped, _ []byte, _ string) ([]byte, error) {
	return wrapped, nil
}

const masterKey = "c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlLi4="

func loadPrivacy(t *testing.T, section string) (*config.Config, error) {
	t.Helper()
	return config.Load(config.Source{File: write(t, "database: sqlite:x.db\nsinks: {out: {kind: http, with: {url: \"https://partner.example/\"}}}\nroutes: {\"*\": [out]}\nprivacy: "+section+"\n")},
		config.Options{Kinds: kinds(t), Masters: map[string]privacy.OpenMaster{"cloud": func(*url.URL) (privacy.Master, error) { return cloudKey{func() {}}, nil }}})
}

func TestTheSectionPrivacyMakesAMasterKey(t *testing.T) {
	t.Parallel()
	for section, cache := range map[string]time.Duration{
		`{keys: ["` + masterKey + `"]}`:                                               0,
		`{master: "cloud://arn:of:a/key", cache: 0}`:                                  -1,
		`{master: "cloud://key", cache: 5m}`:                                          5 * time.Minute,
		`{keys: ["` + masterKey + `"], rules: {t: {subject: /id, fields: [/email]}}}`: 0,
	} {
		c, err := loadPrivacy(t, section)
		require.NoError(t, err, section)
		require.NotNil(t, c.PrivacyConfig().Master)
		require.Equal(t, cache, c.PrivacyConfig().Cache)
		again, err := loadPrivacy(t, section)
		require.NoError(t, err)
		require.True(t, c.ChangesTo(again).None(), "a reload with the same section: %s", section)
	}
	c, err := loadPrivacy(t, `{master: "cloud://key"}`)
	require.NoError(t, err)
	other, err := loadPrivacy(t, `{master: "cloud://other"}`)
	require.NoError(t, err)
	require.Equal(t, config.Changes{More: true}, c.ChangesTo(other))
}

func TestMistakesInTheSectionPrivacyAreNamed(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		`{keys: [hunter2hunter2]}`:                                  "privacy.keys[0] is not base64 of 32 bytes; make one with: openssl rand -base64 32",
		`{keys: ["` + masterKey + `"], master: "cloud://x"}`:        "privacy: keys and master exclude each other",
		`{master: key}`:                                             "privacy.master is no address",
		`{master: "awskms://x"}`:                                    `privacy.master: this program has no keys of the scheme "awskms", but cloud`,
		`{keys: ["` + masterKey + `"], cache: 2h}`:                  "privacy.cache is 2h0m0s: use 0 to 1h",
		`{rules: {t: {subject: /a, fields: [/b]}}}`:                 "privacy.rules: there is no master key",
		`{keys: ["` + masterKey + `"], rules: {t: {fields: [/b]}}}`: "privacy.rules.t.subject is missing",
	} {
		_, err := loadPrivacy(t, section)
		require.ErrorContains(t, err, want, section)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
