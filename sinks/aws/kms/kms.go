// Package kms keeps the master key of private values in AWS KMS. Pass [Open] to program.Masters under the scheme awskms.
// The address of the master key is then that of a symmetric key of KMS, such as
//
//	awskms://arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab
//	awskms://alias/outbox?region=eu-central-1
//
// The program needs the rights kms:Encrypt and kms:Decrypt on the key. KMS keeps the older versions of a key that it
// rotates, so that a rotation changes nothing here. CloudTrail records each request, with the context of the key that is
// wrapped, in base64, and without the key.
package kms

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
)

var _ privacy.OpenMaster = Open

// contextName is the name of the only pair in the encryption context. Its value is the caller's context in base64.
const contextName = "waybill"

// owner is the beginning of an ARN, with the region and the account.
const owner = `arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:`

// legalKey is for the name or the ARN of an alias, and for the id or the ARN of a key: "Key identifiers" in the guide of
// KMS.
var legalKey = regexp.MustCompile(`^(?:(?:` + owner + `)?alias/[A-Za-z0-9/_-]{1,250}|` +
	`(?:` + owner + `key/)?(?:mrk-)?[0-9a-f-]{32,36})$`)

type master struct {
	key    string // as the address names it
	config access.Config
}

// Open returns the master key at an address, which is awskms:// and the ARN of a key or of an alias, the id of a key, or
// the name of an alias, such as alias/outbox. Parameters of the address are region, endpoint, profile and role_arn, which
// mean what they mean for a sink: see [access.Config]. The default of region is that of the ARN. It connects to nothing,
// and returns all mistakes, joined.
//
// A request takes at most 10 s, and has a new connection, with credentials that are found for it: there are few.
func Open(address *url.URL) (privacy.Master, error) {
	m := &master{key: strings.Trim(address.Host+address.Path, "/")}
	mistakes := []error{m.config.Parameters(address.RawQuery)}
	if !legalKey.MatchString(m.key) || address.User != nil || address.Fragment != "" {
		mistakes = append(mistakes, fmt.Errorf("%q is not a key; write its ARN or id, or the ARN or name of an alias, "+
			"such as awskms://alias/outbox?region=eu-central-1", m.key))
	}
	m.config.In(m.key)
	m.config.SetDefaults()
	if err := errors.Join(append(mistakes, m.config.Check(m.key), m.config.Validate())...); err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap implements [privacy.Master]. It needs the right kms:Encrypt. name is the ARN of the key.
func (m *master) Wrap(ctx context.Context, key, authenticated []byte) (wrapped []byte, name string, err error) {
	var answer *kms.EncryptOutput
	err = m.call(ctx, "kms:Encrypt", m.key, func(ctx context.Context, client *kms.Client) (err error) {
		answer, err = client.Encrypt(ctx, &kms.EncryptInput{
			KeyId: &m.key, Plaintext: key, EncryptionContext: encryptionContext(authenticated),
		})
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return answer.CiphertextBlob, aws.ToString(answer.KeyId), nil
}

// Unwrap implements [privacy.Master]. It needs the right kms:Decrypt.
func (m *master) Unwrap(ctx context.Context, wrapped, authenticated []byte, name string) (key []byte, err error) {
	var answer *kms.DecryptOutput
	used := m.used(name)
	what := used + ", for what was wrapped by " + name
	err = m.call(ctx, "kms:Decrypt", what, func(ctx context.Context, client *kms.Client) (err error) {
		answer, err = client.Decrypt(ctx, &kms.DecryptInput{
			KeyId: &used, CiphertextBlob: wrapped, EncryptionContext: encryptionContext(authenticated),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer.Plaintext, nil
}

// used returns the key that has wrapped what has this name. An alias may have moved to another key since then, but only
// within its account and region. So those of the name do not count, and the database cannot name a key of a stranger.
func (m *master) used(name string) string {
	of, _, isAlias := strings.Cut(m.key, "alias/")
	_, id, named := strings.Cut(name, ":key/")
	switch {
	case !isAlias || !named:
		return m.key
	case of == "":
		return id
	}
	return of + "key/" + id
}

func encryptionContext(authenticated []byte) map[string]string {
	return map[string]string{contextName: base64.StdEncoding.EncodeToString(authenticated)}
}

// advice says what to do about the codes that mean that the master key is missing, cannot be used, or is another one.
var advice = map[string]string{
	"NotFoundException":          "there is no such key: correct the address of the master key",
	"DisabledException":          "enable the key",
	"KMSInvalidStateException":   "cancel the deletion of the key, and enable it, or import its material again",
	"InvalidKeyUsageException":   "name a key for symmetric encryption",
	"IncorrectKeyException":      "name the key that has wrapped it",
	"InvalidCiphertextException": "restore what was wrapped, which has changed, or name the key that has wrapped it",
}

// call makes one request, which needs a right. Its errors begin with key.
func (m *master) call(ctx context.Context, right, key string, call func(context.Context, *kms.Client) error) error {
	client := access.NewClient(sinks.Instance{Name: "privacy"}, m.config, func(conf aws.Config) *kms.Client {
		return kms.NewFromConfig(conf)
	})
	defer client.Close()
	err := access.Lookup(right, client.Call(ctx, nil, call))
	code := access.CodeOf(err)
	if hint, lost := advice[code]; lost {
		return sinks.WithAnswer(fmt.Errorf("%w: %s: %s; %s", privacy.ErrMaster, key, code, hint), sinks.AnswerOf(err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
