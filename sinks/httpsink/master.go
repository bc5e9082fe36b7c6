package httpsink

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
)

// minMasterLength is the least length of a master secret in bytes: that of the derived secrets.
const minMasterLength = 32

// masterInfo distinguishes signing secrets from other keys that may be derived from the same
// master secret. The origin of the URL follows it.
const masterInfo = "waybill webhook secret v1 "

// DeriveSecret returns the secret with which a receiver verifies the requests of a sink with
// this master secret. Give it to that receiver only. It depends on the URL's scheme, host and
// port, but not on path and query.
//
// The secret is "whsec_" and the base64 of 32 bytes: HKDF-SHA256 (RFC 5869) of the
// decoded master secret, without a salt, the info "waybill webhook secret v1 "
// followed by the URL's origin (RFC 6454), such as "https://partner.example" or
// "https://partner.example:8443": in lower case, without the scheme's default port.
//
// The error joins the mistakes of both arguments, and does not quote a secret.
func DeriveSecret(masterSecret, rawURL string) (string, error) {
	m, errMaster := parseMaster(masterSecret)
	if errMaster != nil {
		errMaster = fmt.Errorf("master secret: %w", errMaster)
	}
	u, errURL := parseURL(rawURL)
	if errURL != nil {
		errURL = fmt.Errorf("url: %w", errURL)
	}
	if err := errors.Join(errMaster, errURL); err != nil {
		return "", err
	}
	return signature.SecretPrefix + base64.StdEncoding.EncodeToString(m.derive(u)), nil
}

// master is a decoded master secret.
type master []byte

func parseMaster(secret string) (master, error) {
	for _, prefix := range []string{signature.SecretPrefix, signature.PrivateKeyPrefix, signature.PublicKeyPrefix} {
		if strings.HasPrefix(secret, prefix) {
			return nil, fmt.Errorf("has the prefix %s, so it is the secret of one receiver; make a new one, which no receiver gets, with: openssl rand -base64 32", prefix)
		}
	}
	raw, err := base64.StdEncoding.DecodeString(secret)
	switch {
	case err != nil:
		return nil, errors.New("is not base64; make one with: openssl rand -base64 32")
	case len(raw) < minMasterLength:
		return nil, fmt.Errorf("is %d bytes long once decoded, less than %d; make one with: openssl rand -base64 32", len(raw), minMasterLength)
	}
	return raw, nil
}

// derive returns the secret of one receiver.
func (m master) derive(to *url.URL) []byte {
	secret, err := hkdf.Key(sha256.New, m, nil, masterInfo+originOf(to), sha256.Size)
	if err != nil {
		panic(err) // only for a length or a key that HKDF does not support
	}
	return secret
}

// originOf returns scheme, host and port in the form of RFC 6454, section 6.2.
func originOf(u *url.URL) string {
	host, defaultPort := strings.ToLower(u.Hostname()), 443
	if u.Scheme == "http" {
		defaultPort = 80
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port, err := strconv.Atoi(u.Port()); err == nil && port != defaultPort {
		return u.Scheme + "://" + host + ":" + strconv.Itoa(port)
	}
	return u.Scheme + "://" + host
}
