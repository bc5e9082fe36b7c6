// Package kms keeps the master key of private values in Cloud KMS. Pass [Open] to program.Masters under the scheme gcpkms.
// The address of the master key is then that of a key for symmetric encryption:
//
//	gcpkms://projects/shop/locations/europe-west3/keyRings/outbox/cryptoKeys/master
//
// The program needs roles/cloudkms.cryptoKeyEncrypterDecrypter on the key. A rotation of the key changes nothing here, as
// long as the versions that have wrapped something are enabled.
package kms

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/api/cloudkms/v1"
	"google.golang.org/api/googleapi"

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/internal/account"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

var _ privacy.OpenMaster = Open

// ErrDamaged means that a request or its answer was changed on its way, by the checksums of the service. It may be
// repeated.
var ErrDamaged = errors.New("the checksums of a request to Cloud KMS, or of its answer, are wrong")

// timeout is how long a request may take.
const timeout = 10 * time.Second

var legalKey = regexp.MustCompile(`^projects/[a-z0-9][a-z0-9.:-]{1,99}/locations/[a-z0-9-]{1,63}` +
	`/keyRings/[A-Za-z0-9_-]{1,63}/cryptoKeys/[A-Za-z0-9_-]{1,63}$`)

// keys are the methods for keys of the service.
type keys = cloudkms.ProjectsLocationsKeyRingsCryptoKeysService

type master struct {
	key    string // its resource name
	access account.Access
}

// Open returns the master key at an address, which is gcpkms:// and the resource name of a key, without a version.
// Requests have the Application Default Credentials, unless the address has the parameter credentials_file or
// impersonate, which are those of the kind pubsub. With the parameter endpoint, such as http://127.0.0.1:8085, requests go
// to an emulator without credentials. It connects to nothing, and returns all mistakes, joined.
//
// A request takes at most 10 s, and has a new connection, with credentials that are read for it: there are few.
func Open(address *url.URL) (privacy.Master, error) {
	m := &master{key: strings.Trim(address.Host+address.Path, "/")}
	mistakes := []error{m.access.Parameters(address.RawQuery)}
	if !legalKey.MatchString(m.key) || address.User != nil || address.Fragment != "" {
		mistakes = append(mistakes, fmt.Errorf("%q is not a key; write "+
			"gcpkms://projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY", m.key))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap implements [privacy.Master]. It needs the permission cloudkms.cryptoKeyVersions.useToEncrypt. name is the resource
// name of the key's version.
func (m *master) Wrap(ctx context.Context, key, authenticated []byte) (wrapped []byte, name string, err error) {
	var answer *cloudkms.EncryptResponse
	err = m.call(ctx, "useToEncrypt", m.key, func(ctx context.Context, service *keys) (err error) {
		answer, err = service.Encrypt(m.key, &cloudkms.EncryptRequest{
			Plaintext:                         base64.StdEncoding.EncodeToString(key),
			PlaintextCrc32c:                   checksum(key),
			AdditionalAuthenticatedData:       base64.StdEncoding.EncodeToString(authenticated),
			AdditionalAuthenticatedDataCrc32c: checksum(authenticated),
			ForceSendFields:                   []string{"PlaintextCrc32c", "AdditionalAuthenticatedDataCrc32c"}, // also 0
		}).Context(ctx).Do()
		return err
	})
	if err != nil {
		return nil, "", err
	}
	wrapped, err = base64.StdEncoding.DecodeString(answer.Ciphertext)
	verified := answer.VerifiedPlaintextCrc32c && answer.VerifiedAdditionalAuthenticatedDataCrc32c
	if err != nil || !verified || checksum(wrapped) != answer.CiphertextCrc32c {
		return nil, "", fmt.Errorf("%s: %w", m.key, ErrDamaged)
	}
	return wrapped, answer.Name, nil
}

// Unwrap implements [privacy.Master]. It needs the permission cloudkms.cryptoKeyVersions.useToDecrypt. The service knows
// the version from what it has wrapped.
func (m *master) Unwrap(ctx context.Context, wrapped, authenticated []byte, name string) (key []byte, err error) {
	var answer *cloudkms.DecryptResponse
	what := m.key + ", for what was wrapped by " + name
	err = m.call(ctx, "useToDecrypt", what, func(ctx context.Context, service *keys) (err error) {
		answer, err = service.Decrypt(m.key, &cloudkms.DecryptRequest{
			Ciphertext:                        base64.StdEncoding.EncodeToString(wrapped),
			CiphertextCrc32c:                  checksum(wrapped),
			AdditionalAuthenticatedData:       base64.StdEncoding.EncodeToString(authenticated),
			AdditionalAuthenticatedDataCrc32c: checksum(authenticated),
			ForceSendFields:                   []string{"CiphertextCrc32c", "AdditionalAuthenticatedDataCrc32c"},
		}).Context(ctx).Do()
		return err
	})
	if err != nil {
		return nil, err
	}
	key, err = base64.StdEncoding.DecodeString(answer.Plaintext)
	if err != nil || checksum(key) != answer.PlaintextCrc32c {
		return nil, fmt.Errorf("%s: %w", m.key, ErrDamaged)
	}
	return key, nil
}

// checksum is CRC32C: "Verifying end-to-end data integrity" in the documentation of Cloud KMS.
func checksum(b []byte) int64 { return int64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

// call makes one request, which needs a permission. Its errors begin with key.
func (m *master) call(ctx context.Context, permission, key string, call func(context.Context, *keys) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := account.Client(sinks.Instance{})
	defer client.CloseIdleConnections()
	options, err := m.access.Options(sinks.Instance{HTTPClient: client}, cloudkms.CloudkmsScope, "/")
	if err != nil {
		return fmt.Errorf("%s: no credentials for Cloud KMS: %w", key, err)
	}
	service, err := cloudkms.NewService(ctx, options...)
	if err == nil {
		err = call(ctx, service.Projects.Locations.KeyRings.CryptoKeys)
	}
	return failure(permission, key, err)
}

// advice says what to do about the codes that mean that the master key is missing, cannot be used, or is another one.
var advice = map[string]string{
	"NOT_FOUND":           "there is no such key: correct the address of the master key",
	"FAILED_PRECONDITION": "enable the version of the key, or restore it while its destruction is scheduled",
	"INVALID_ARGUMENT":    "name the key that has wrapped it, one for symmetric encryption, or restore what was wrapped",
}

// failure returns the error of a request.
func failure(permission, key string, err error) error {
	var (
		answer *googleapi.Error
		body   struct {
			Error struct{ Status string } `json:"error"`
		}
	)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return fmt.Errorf("%s: %w", key, err)
	}
	_ = json.Unmarshal([]byte(answer.Body), &body) // that of another server has no status
	said := line.Of(answer.Message, sinks.MaxAnswer)
	if hint, lost := advice[body.Error.Status]; lost {
		return sinks.WithAnswer(fmt.Errorf("%w: %s: %s; %s", privacy.ErrMaster, key, body.Error.Status, hint), said)
	}
	if body.Error.Status == "PERMISSION_DENIED" {
		return sinks.WithAnswer(fmt.Errorf("%s: the permission cloudkms.cryptoKeyVersions.%s is missing; "+
			"grant roles/cloudkms.cryptoKeyEncrypterDecrypter on the key, and enable Cloud KMS in its project", key, permission), said)
	}
	return sinks.WithAnswer(fmt.Errorf("%s: HTTP %d %s", key, answer.Code, body.Error.Status), said)
}
