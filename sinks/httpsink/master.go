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
)

// minMasterLength is in bytes: as much as what is derived from it.
const minMasterLength = 32

// masterInfo keeps derived secrets apart from whatever else is derived from the
// same master secret. The origin of the URL follows it.
const masterInfo = "waybill webhook secret v1 "

// DeriveSecret returns the secret with which a receiver verifies requests that a
// sink with that master secret signs. It is for that receiver only. Of the URL
// scheme, host and port count; a path or a query change nothing.
//
// The secret is "whsec_" and the base64 of 32 bytes: HKDF-SHA256 (RFC 5869) of the
// decoded master secret, without a salt, the info "waybill webhook secret v1 "
// followed by the URL's origin (RFC 6454), such as "https://partner.example" or
// "https://partner.example:8443": in lower case, without the scheme's default port.
//
// An error names what is wrong with either, and repeats no secret.
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
	return secretPrefix + base64.StdEncoding.EncodeToString(m.derive(u)), nil
}

// master makes the secrets of receivers.
type master []byte

func parseMaster(secret string) (master, error) {
	for _, prefix := range []string{secretPrefix, privateKeyPrefix, publicKeyPrefix} {
		if strings.HasPrefix(secret, prefix) {
			return nil, fmt.Errorf("is what one receiver gets, by its prefix %s; make a new one, for no receiver, with: openssl rand -base64 32", prefix)
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
		panic(err) // only of a length that HKDF cannot make, or a key that is too short
	}
	return secret
}

// originOf is scheme, host and port as RFC 6454, section 6.1, writes them.
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
