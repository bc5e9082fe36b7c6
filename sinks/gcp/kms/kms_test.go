package kms_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/cloudkms/v1"

	"github.com/waybill-go/waybill/framework/privacy"
	gcpkms "github.com/waybill-go/waybill/sinks/gcp/kms"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
)

const (
	ring = "projects/shop/locations/europe-west3/keyRings/outbox/cryptoKeys/"
	key  = ring + "master"
)

// secret is the key that is wrapped.
var secret = bytes.Repeat([]byte("0123456789abcdef"), 2)

// about is what the key is authenticated with.
var about = []byte("root \x00 of a test")

// service is Encrypt and Decrypt of Cloud KMS, with the published types of its JSON API. Google has no emulator of it, and
// no fake is published. It encrypts, and checks what the documentation of the service says that it checks.
type service struct {
	address string

	mu       sync.Mutex
	versions map[string][]cipher.AEAD // of each key; nil is a version that was destroyed. The last one is the primary
	answer   func(http.ResponseWriter, *http.Request) bool
	damage   func(*cloudkms.EncryptResponse, *cloudkms.DecryptResponse)
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{versions: make(map[string][]cipher.AEAD)}
	s.rotate(key)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.address = server.URL
	return s
}

// rotate adds a version of a key, which is then its primary one.
func (s *service) rotate(name string) {
	material := make([]byte, 32)
	_, _ = rand.Read(material)          // never fails
	block, _ := aes.NewCipher(material) // the length is legal
	aead, _ := cipher.NewGCM(block)     // the block size is legal
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[name] = append(s.versions[name], aead)
}

// destroy destroys a version of a key, from 1.
func (s *service) destroy(name string, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[name][version-1] = nil
}

// ServeHTTP implements the two methods.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil && s.answer(w, r) {
		return
	}
	name, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), ":")
	versions, known := s.versions[name]
	if !known {
		refuse(404, "NOT_FOUND", "CryptoKey "+name+" not found.")(w, r)
		return
	}
	var (
		out any
		err error
	)
	switch method {
	case "encrypt":
		out, err = s.encrypt(name, versions, r)
	case "decrypt":
		out, err = s.decrypt(name, versions, r)
	}
	if status, message, failed := strings.Cut(fmt.Sprint(err), ": "); failed {
		refuse(400, status, message)(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (s *service) encrypt(name string, versions []cipher.AEAD, r *http.Request) (*cloudkms.EncryptResponse, error) {
	var in cloudkms.EncryptRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, fmt.Errorf("INVALID_ARGUMENT: %w", err)
	}
	aead := versions[len(versions)-1]
	if aead == nil {
		return nil, fmt.Errorf("FAILED_PRECONDITION: %s/cryptoKeyVersions/%d is not enabled, current state is: DESTROYED.", name, len(versions))
	}
	plain, aad := decoded(in.Plaintext), decoded(in.AdditionalAuthenticatedData)
	if sum(plain) != in.PlaintextCrc32c || sum(aad) != in.AdditionalAuthenticatedDataCrc32c {
		return nil, fmt.Errorf("INVALID_ARGUMENT: a checksum is wrong")
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	sealed := aead.Seal(append([]byte{byte(len(versions))}, nonce...), nonce, plain, aad)
	out := &cloudkms.EncryptResponse{
		Name:       fmt.Sprintf("%s/cryptoKeyVersions/%d", name, len(versions)),
		Ciphertext: base64.StdEncoding.EncodeToString(sealed), CiphertextCrc32c: sum(sealed),
		VerifiedPlaintextCrc32c: true, VerifiedAdditionalAuthenticatedDataCrc32c: true,
	}
	if s.damage != nil {
		s.damage(out, nil)
	}
	return out, nil
}

func (s *service) decrypt(name string, versions []cipher.AEAD, r *http.Request) (*cloudkms.DecryptResponse, error) {
	var in cloudkms.DecryptRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, fmt.Errorf("INVALID_ARGUMENT: %w", err)
	}
	sealed, aad := decoded(in.Ciphertext), decoded(in.AdditionalAuthenticatedData)
	if sum(sealed) != in.CiphertextCrc32c || sum(aad) != in.AdditionalAuthenticatedDataCrc32c {
		return nil, fmt.Errorf("INVALID_ARGUMENT: a checksum is wrong")
	}
	errOther := fmt.Errorf("INVALID_ARGUMENT: Decryption failed: verify that 'name' refers to the correct CryptoKey.")
	if len(sealed) < 13 || sealed[0] == 0 || int(sealed[0]) > len(versions) {
		return nil, errOther
	}
	aead := versions[sealed[0]-1]
	if aead == nil {
		return nil, fmt.Errorf("FAILED_PRECONDITION: %s/cryptoKeyVersions/%d is not enabled, current state is: DESTROYED.", name, sealed[0])
	}
	plain, err := aead.Open(nil, sealed[1:13], sealed[13:], aad)
	if err != nil {
		return nil, errOther
	}
	out := &cloudkms.DecryptResponse{Plaintext: base64.StdEncoding.EncodeToString(plain), PlaintextCrc32c: sum(plain)}
	if s.damage != nil {
		s.damage(nil, out)
	}
	return out, nil
}

func sum(b []byte) int64 { return int64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

func decoded(text string) []byte {
	b, _ := base64.StdEncoding.DecodeString(text) // its checksum shows a mistake
	return b
}

// refuse answers as the JSON APIs of Google do.
func refuse(code int, status, message string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "status": status, "message": message}})
		return true
	}
}

// answers makes the service answer all requests; nil ends it.
func (s *service) answers(answer func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// damages makes the service change its answers; nil ends it.
func (s *service) damages(damage func(*cloudkms.EncryptResponse, *cloudkms.DecryptResponse)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage = damage
}

func open(t *testing.T, name, endpoint string) privacy.Master {
	t.Helper()
	address, err := privacy.ParseAddress("gcpkms://" + name + "?endpoint=" + url.QueryEscape(endpoint))
	require.NoError(t, err)
	m, err := gcpkms.Open(address)
	require.NoError(t, err)
	return m
}

func wrap(t *testing.T, m privacy.Master) (wrapped []byte, name string) {
	t.Helper()
	wrapped, name, err := m.Wrap(t.Context(), secret, about)
	require.NoError(t, err)
	return wrapped, name
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
	m := open(t, key, start(t).address)
	for _, context := range [][]byte{about, nil} {
		wrapped, name, err := m.Wrap(t.Context(), secret, context)
		require.NoError(t, err)
		require.Equal(t, key+"/cryptoKeyVersions/1", name)
		require.NotContains(t, string(wrapped), string(secret))
		got, err := m.Unwrap(t.Context(), wrapped, context, name)
		require.NoError(t, err)
		require.Equal(t, secret, got)
	}
}

func TestWhatHasChangedOrIsOfAnotherKeyIsNotUnwrapped(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.rotate(ring + "other")
	m := open(t, key, s.address)
	wrapped, name := wrap(t, m)
	_, err := m.Unwrap(t.Context(), wrapped, []byte("root of another"), name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	_, err = open(t, ring+"other", s.address).Unwrap(t.Context(), wrapped, about, name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, ring+"other, for what was wrapped by "+name+": INVALID_ARGUMENT; name the key that has wrapped it")
	wrapped[len(wrapped)-1]++
	_, err = m.Unwrap(t.Context(), wrapped, about, name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
}

func TestARotatedKeyUnwrapsWhatItsOldVersionHasWrapped(t *testing.T) {
	t.Parallel()
	s := start(t)
	m := open(t, key, s.address)
	wrapped, name := wrap(t, m)
	s.rotate(key)
	got, err := m.Unwrap(t.Context(), wrapped, about, name)
	require.NoError(t, err)
	require.Equal(t, secret, got)
	_, renamed := wrap(t, m)
	require.Equal(t, key+"/cryptoKeyVersions/2", renamed)
}

func TestADestroyedVersionOrAMissingKeyIsNoMasterKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	m := open(t, key, s.address)
	wrapped, name := wrap(t, m)
	s.destroy(key, 1)
	_, err := m.Unwrap(t.Context(), wrapped, about, name)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, "for what was wrapped by "+name+": FAILED_PRECONDITION; enable the version of the key, or restore it")
	_, _, err = m.Wrap(t.Context(), secret, about)
	require.ErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
	_, _, err = open(t, ring+"missing", s.address).Wrap(t.Context(), secret, about)
	require.ErrorIs(t, err, privacy.ErrMaster)
	require.ErrorContains(t, err, ring+"missing: NOT_FOUND; there is no such key")
}

func TestErrorsThatAreNotAboutTheMasterKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	m := open(t, key, s.address)
	wrapped, name := wrap(t, m)
	for what, want := range map[string]struct {
		answer       func(http.ResponseWriter, *http.Request) bool
		wrap, unwrap string
	}{
		"denied": {
			refuse(403, "PERMISSION_DENIED", "said the service"),
			"the permission cloudkms.cryptoKeyVersions.useToEncrypt is missing", "the permission cloudkms.cryptoKeyVersions.useToDecrypt is missing",
		},
		"broken": {refuse(503, "UNAVAILABLE", "said the service"), "HTTP 503 UNAVAILABLE", "HTTP 503 UNAVAILABLE"},
		"another's": {
			func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true },
			"HTTP 404", "HTTP 404",
		},
	} {
		s.answers(want.answer)
		_, _, err := m.Wrap(t.Context(), secret, about)
		require.NotErrorIs(t, err, privacy.ErrMaster, what)
		require.ErrorContains(t, err, key+": "+want.wrap, what)
		requireSilent(t, err)
		_, err = m.Unwrap(t.Context(), wrapped, about, name)
		require.NotErrorIs(t, err, privacy.ErrMaster, what)
		require.ErrorContains(t, err, want.unwrap, what)
		requireSilent(t, err)
	}
	s.answers(nil)
	got, err := m.Unwrap(t.Context(), wrapped, about, name)
	require.NoError(t, err)
	require.Equal(t, secret, got)
}

func TestADamagedAnswerIsNotUsed(t *testing.T) {
	t.Parallel()
	s := start(t)
	m := open(t, key, s.address)
	wrapped, name := wrap(t, m)
	for what, damage := range map[string]func(*cloudkms.EncryptResponse){
		"key not checked":     func(e *cloudkms.EncryptResponse) { e.VerifiedPlaintextCrc32c = false },
		"context not checked": func(e *cloudkms.EncryptResponse) { e.VerifiedAdditionalAuthenticatedDataCrc32c = false },
		"other checksum":      func(e *cloudkms.EncryptResponse) { e.CiphertextCrc32c++ },
		"cut":                 func(e *cloudkms.EncryptResponse) { e.Ciphertext = e.Ciphertext[:8] },
		"no base64":           func(e *cloudkms.EncryptResponse) { e.Ciphertext = "?" },
	} {
		s.damages(func(e *cloudkms.EncryptResponse, _ *cloudkms.DecryptResponse) { damage(e) })
		_, _, err := m.Wrap(t.Context(), secret, about)
		require.ErrorIs(t, err, gcpkms.ErrDamaged, what)
		requireSilent(t, err)
	}
	s.damages(func(_ *cloudkms.EncryptResponse, d *cloudkms.DecryptResponse) { d.PlaintextCrc32c++ })
	_, err := m.Unwrap(t.Context(), wrapped, about, name)
	require.ErrorIs(t, err, gcpkms.ErrDamaged)
	require.NotErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
}

func TestAServiceThatCannotBeAskedSaysNothingAboutTheKey(t *testing.T) {
	t.Parallel()
	_, _, err := open(t, key, "http://"+servertest.Unused).Wrap(t.Context(), secret, about)
	require.NotErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = open(t, key, "http://"+servertest.Silent(t)).Wrap(ctx, secret, about)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, privacy.ErrMaster)
	requireSilent(t, err)
	u, err := privacy.ParseAddress("gcpkms://" + key + "?credentials_file=/missing")
	require.NoError(t, err)
	m, err := gcpkms.Open(u)
	require.NoError(t, err)
	_, _, err = m.Wrap(t.Context(), secret, about)
	require.ErrorContains(t, err, "no credentials for Cloud KMS")
	require.NotErrorIs(t, err, privacy.ErrMaster)
}

func TestMistakesInAnAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"gcpkms://":     `"" is not a key; write gcpkms://projects/PROJECT/locations/LOCATION`,
		"gcpkms://shop": `"shop" is not a key`,
		"gcpkms://" + key + "/cryptoKeyVersions/1":  "is not a key",
		"gcpkms://me:pw@" + key:                     "is not a key",
		"gcpkms://" + key + "#a":                    "is not a key",
		"gcpkms://" + key + "%20a":                  "is not a key",
		"gcpkms://" + key + "?region=eu":            "region: is unknown or there twice; the parameters are credentials_file, endpoint and impersonate",
		"gcpkms://" + key + "?impersonate=me":       `impersonate: "me" is not the email address`,
		"gcpkms://" + key + "?endpoint=localhost:1": "endpoint: is not the address of an emulator",
		"gcpkms://" + key + "?endpoint=%":           "the parameters cannot be read",
	} {
		u, err := privacy.ParseAddress(address)
		require.NoError(t, err, address)
		_, err = gcpkms.Open(u)
		require.ErrorContains(t, err, want, address)
		require.NotContains(t, err.Error(), "pw")
	}
}
