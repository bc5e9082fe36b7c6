// Package certificates reads the certificate files of a sink's configuration again for each
// TLS handshake, so that renewed certificates are used without a restart.
package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
)

// Files are the PEM files that a configuration names under "tls:". An empty path means no
// file.
type Files struct {
	// CA has the certificate authorities to trust, instead of the system's.
	CA string
	// Cert has the client's certificate and its intermediate certificates, and Key its
	// private key. Set both or neither.
	Cert, Key string
	// Within is what is in front of the keys in errors, such as "registry."; "" for a sink's tls.
	Within string
}

// Certificates are the contents of the files. Each handshake reads the files again. If their
// contents cannot be used, such as those of a half-written file, the previous contents stay
// in use, and the log reports it once for the same contents or error.
//
// Apply may be called concurrently, and so may the handshakes of its configurations.
type Certificates struct {
	authorities *source[*x509.CertPool]   // nil: the system's authorities
	client      *source[*tls.Certificate] // nil: no client certificate
}

// New reads the files. Its error joins all mistakes. Each begins with a configuration key,
// such as tls.ca_file.
func New(files Files, logger *slog.Logger) (*Certificates, error) {
	c := new(Certificates)
	var mistakes []error
	if files.CA != "" {
		c.authorities = newSource(logger, parseAuthorities, files.CA)
		if err := c.authorities.read(); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%stls.ca_file: %w", files.Within, err))
		}
	}
	switch {
	case files.Cert == "" && files.Key == "":
	case files.Key == "":
		mistakes = append(mistakes, fmt.Errorf("%stls.key_file: is missing, but tls.cert_file is set", files.Within))
	case files.Cert == "":
		mistakes = append(mistakes, fmt.Errorf("%stls.cert_file: is missing, but tls.key_file is set", files.Within))
	default:
		c.client = newSource(logger, parsePair, files.Cert, files.Key)
		if err := c.client.read(); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%stls.cert_file: %w", files.Within, err))
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return c, nil
}

// Apply makes a client's config verify servers with the authorities and present the client
// certificate. It leaves the settings for which there is no file unchanged.
//
// The config can serve any number of handshakes. Set its ServerName before the call. Without
// it, the server's name is taken from the handshake; that fails for a server with an IP
// address, because a handshake does not contain one.
func (c *Certificates) Apply(config *tls.Config) {
	if c.client != nil {
		config.Certificates = nil
		config.GetClientCertificate = c.clientCertificate
	}
	if c.authorities != nil {
		// crypto/tls uses one pool for all handshakes of a config. So its verification is
		// switched off and repeated here with the current pool. VerifyConnection also runs
		// in resumed handshakes.
		config.RootCAs = nil
		config.InsecureSkipVerify = true
		name := config.ServerName
		config.VerifyConnection = func(state tls.ConnectionState) error { return c.verify(name, state) }
	}
}

// clientCertificate returns the certificate, or an empty one if the server does not accept
// it, as crypto/tls does with Config.Certificates.
func (c *Certificates) clientCertificate(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair := c.client.current()
	if request.SupportsCertificate(pair) != nil {
		return new(tls.Certificate), nil
	}
	return pair, nil
}

var errNoName = errors.New("x509: neither the configuration nor the handshake names the server, so its certificate cannot be verified")

// verify does what crypto/tls does without InsecureSkipVerify.
func (c *Certificates) verify(name string, state tls.ConnectionState) error {
	if name == "" {
		name = state.ServerName
	}
	if name == "" {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: errNoName}
	}
	options := x509.VerifyOptions{Roots: c.authorities.current(), DNSName: name, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] { // a server always sends at least one
		options.Intermediates.AddCert(cert)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

// parseAuthorities skips certificates that this Go cannot parse, as
// x509.CertPool.AppendCertsFromPEM does.
func parseAuthorities(contents [][]byte) (*x509.CertPool, error) {
	blocks, err := blocksOf(contents[0])
	if err != nil {
		return nil, err
	}
	pool, found := x509.NewCertPool(), false
	for _, block := range blocks {
		if cert, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			pool.AddCert(cert)
			found = true
		}
	}
	if !found {
		return nil, errors.New("contains no certificate in PEM form")
	}
	return pool, nil
}

func parsePair(contents [][]byte) (*tls.Certificate, error) {
	if _, err := blocksOf(contents[0]); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	return &pair, err
}

// blocksOf returns the PEM blocks of a file. A file that ends inside a block is an error,
// because its rest is still being written.
func blocksOf(text []byte) (blocks []*pem.Block, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		blocks, text = append(blocks, block), rest
	}
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		return nil, errors.New("ends inside a certificate")
	}
	return blocks, nil
}
