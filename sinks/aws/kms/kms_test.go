package kms_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	awskms "github.com/waybill-go/waybill/sinks/aws/kms"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

// secret is the key that is wrapped.
var secret = bytes.Repeat([]byte("0123456789abcdef"), 2)

// about is what the key is authenticated with.
var about = []byte("root \x00 of a test")

func open(t *testing.T, key, endpoint string) privacy.Master {
	t.Helper()
	address, err := privacy.ParseAddress("awskms://" + key + "?region=" + awstest.Region + "&endpoint=" + url.QueryEscape(endpoint))
	require.NoError(t, err)
	m, err := awskms.Open(address)
	require.NoError(t, err)
	return m
}

// newKey makes a key in moto, and returns its ARN and id.
func newKey(t *testing.T) (client *kms.Client, arn, id string) {
	t.Helper()
	client = kms.NewFromConfig(awstest.Config(awstest.Moto(t)))
	made, err := client.CreateKey(t.Context(), &kms.CreateKeyInput{})
	require.NoError(t, err)
	return client, *made.KeyMetadata.Arn, *made.KeyMetadata.KeyId
}

// requireSilent requires that an error says nothing about the key that is wrapped.
func requireSilent(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotContains(t, err.Error(), string(secret))
	require.NotContains(t, err.Error(), base64.StdEncoding.EncodeToString(secret))
}

func TestAKeyIsWrappedAndUnwrapped(t *testing.T) {
	t.Parallel()
	client, arn, id := newKey(t)
	alias := "alias/shop/" + id
	_, err := client.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: &alias, TargetKeyId: &id})
	require.NoError(t, err)
	for _, key := range []string{arn, id, alias, strings.Replace(arn, "key/"+id, alias, 1)} {
		m := open(t, key, awstest.Moto(t))
		wrapped, name, err := m.Wrap(t.Context(), secret, about)
		require.NoError(t, err, key)
		require.Equal(t, arn, name)
		require.NotContains(t, string(wrapped), string(secret))
		got, err := m.Unwrap(t.Context(), wrapped, about, name)
		require.NoError(t, err, key)
		require.Equal(t, secret, got)
	}
}

func TestWhatHasChangedIsNotUnwrapped(t *testing.T) {
	t.Parallel()
	_, arn, _ := newKey(t)
	m := open(t, arn, awstest.Moto(t))
	wrapped, name, err := m.Wrap(t.Context(), secret, about)
	require.NoError(t, err)
	_, err = m.Unwrap(t.Context(), wrapped, []byte("root of another"), name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, arn+", for what was wrapped by "+arn+": InvalidCiphertextException; restore what was wrapped")
	wrapped[len(wrapped)-1]++
	_, err = m.Unwrap(t.Context(), wrapped, about, name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
}

func TestAnAliasThatHasMovedUnwrapsWhatItsOldKeyHasWrapped(t *testing.T) {
	t.Parallel()
	client, arn, id := newKey(t)
	_, other, otherID := newKey(t)
	alias := "alias/" + id
	_, err := client.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: &alias, TargetKeyId: &id})
	require.NoError(t, err)
	byName, byARN := open(t, alias, awstest.Moto(t)), open(t, strings.Replace(arn, "key/"+id, alias, 1), awstest.Moto(t))
	wrapped, name, err := byName.Wrap(t.Context(), secret, about)
	require.NoError(t, err)
	_, err = client.UpdateAlias(t.Context(), &kms.UpdateAliasInput{AliasName: &alias, TargetKeyId: &otherID})
	require.NoError(t, err)
	for _, m := range []privacy.Master{byName, byARN} {
		got, err := m.Unwrap(t.Context(), wrapped, about, name)
		require.NoError(t, err)
		require.Equal(t, secret, got)
		_, renamed, err := m.Wrap(t.Context(), secret, about)
		require.NoError(t, err)
		require.Equal(t, other, renamed)
	}
}

func TestARowCannotNameAKeyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	_, arn, id := newKey(t)
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	asked := make(chan string, 1)
	proxy.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		var request struct{ KeyId string }
		text, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(text, &request)
		r.Body = io.NopCloser(bytes.NewReader(text))
		asked <- request.KeyId
		return false
	})
	const stranger = "arn:aws:kms:us-east-1:999999999999:key/"
	account, _, _ := strings.Cut(arn, "key/")
	for key, want := range map[string]string{arn: arn, account + "alias/outbox": arn, "alias/outbox": id} {
		_, err := open(t, key, proxy.URL).Unwrap(t.Context(), []byte("wrapped"), about, stranger+id)
		require.ErrorIs(t, err, privacy.ErrMaster)
		require.Equal(t, want, <-asked)
	}
}

func TestAMissingKeyIsNoMasterKey(t *testing.T) {
	t.Parallel()
	_, arn, id := newKey(t)
	missing := strings.Replace(arn, id, "00000000-0000-0000-0000-000000000000", 1)
	_, _, err := open(t, missing, awstest.Moto(t)).Wrap(t.Context(), secret, about)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, missing+": NotFoundException; there is no such key")
	requireSilent(t, err)
}

// TestErrorsOfTheService has the answers that moto does not give: it does not look at the state of a key, nor at rights.
func TestErrorsOfTheService(t *testing.T) {
	t.Parallel()
	_, arn, _ := newKey(t)
	moto := awstest.Moto(t)
	proxy := awstest.NewProxy(t, moto)
	m := open(t, arn, proxy.URL)
	wrapped, name, err := m.Wrap(t.Context(), secret, about)
	require.NoError(t, err)
	for what, want := range map[string]struct {
		awstest.Fault
		lost         bool
		wrap, unwrap string
	}{
		"disabled":         {awstest.Refuse(400, "DisabledException"), true, "enable the key", "enable the key"},
		"pending deletion": {awstest.Refuse(400, "KMSInvalidStateException"), true, "cancel the deletion", "cancel the deletion"},
		"another key":      {awstest.Refuse(400, "IncorrectKeyException"), true, "", "name the key that has wrapped it"},
		"not for this":     {awstest.Refuse(400, "InvalidKeyUsageException"), true, "name a key for symmetric", "name a key for symmetric"},
		"denied":           {awstest.Refuse(400, "AccessDeniedException"), false, "the right kms:Encrypt is missing", "the right kms:Decrypt is missing"},
		"throttled":        {awstest.Refuse(400, "ThrottlingException"), false, "throttled", "throttled"},
		"broken":           {awstest.Refuse(500, "KMSInternalException"), false, "unavailable", "unavailable"},
		"no answer":        {awstest.Cut(moto, false), false, "unavailable", "unavailable"},
	} {
		proxy.Break(want.Fault)
		_, _, err := m.Wrap(t.Context(), secret, about)
		requireSilent(t, err)
		require.ErrorContains(t, err, arn, what)
		require.ErrorContains(t, err, want.wrap, what)
		_, err = m.Unwrap(t.Context(), wrapped, about, name)
		requireSilent(t, err)
		require.Equal(t, want.lost, errors.Is(err, privacy.ErrMaster), "%v", err)
		require.ErrorContains(t, err, want.unwrap, what)
	}
	proxy.Break(nil)
	got, err := m.Unwrap(t.Context(), wrapped, about, name)
	require.NoError(t, err)
	require.Equal(t, secret, got)
}

func TestAServiceThatCannotBeAskedSaysNothingAboutTheKey(t *testing.T) {
	t.Parallel()
	const key = "alias/outbox"
	_, _, err := open(t, key, "http://"+servertest.Unused).Wrap(t.Context(), secret, about)
	require.NotErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = open(t, key, "http://"+servertest.Silent(t)).Wrap(ctx, secret, about)
	require.NotErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, "no answer in time")
	requireSilent(t, err)
}

func TestMistakesInAnAddress(t *testing.T) {
	t.Parallel()
	const arn, id = "arn:aws:kms:eu-central-1:111122223333:", "1234abcd-12ab-34cd-56ef-1234567890ab"
	for address, want := range map[string]string{
		"awskms://":                                   `"" is not a key; write its ARN or id`,
		"awskms://outbox":                             `"outbox" is not a key`,
		"awskms://alias":                              `"alias" is not a key`,
		"awskms://me:pw@" + id:                        "is not a key",
		"awskms://" + id + "#a":                       "is not a key",
		"awskms://" + id + ":80":                      "is not a key",
		"awskms://key/" + id:                          "is not a key",
		"awskms://" + arn + id:                        "is not a key",
		"awskms://arn:aws:s3:::bucket":                "is not a key",
		"awskms://" + id + "?zone=a":                  "zone: is unknown or there twice; the parameters are endpoint, profile, region and role_arn",
		"awskms://" + id + "?region=a&region=b":       "region: is unknown or there twice",
		"awskms://" + id + "?endpoint=nowhere":        "endpoint: is not a URL",
		"awskms://" + id + "?role_arn=admin":          "role_arn: is not an ARN",
		"awskms://" + id + "?region=%":                "the parameters cannot be read",
		"awskms://" + arn + "key/" + id + "?region=a": "is in the region eu-central-1, but region is a",
	} {
		u, err := privacy.ParseAddress(address)
		require.NoError(t, err, address)
		_, err = awskms.Open(u)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "pw")
	}
	for _, key := range []string{arn + "key/" + id, arn + "alias/shop/outbox", id, "alias/outbox", arn + "key/mrk-1234abcd12ab34cd56ef1234567890ab"} {
		u, err := privacy.ParseAddress("awskms://" + key)
		require.NoError(t, err)
		_, err = awskms.Open(u)
		require.NoError(t, err)
	}
}
