// Package certificates keeps the TLS handshakes of a sink as current as the files of its
// configuration: renewed certificates count from the next handshake on.
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

// Files are the files in PEM form that a configuration names under "tls:". "" stands for
// none.
type Files struct {
	// CA holds the authorities to trust in place of the system's.
	CA string
	// Cert holds the client's certificate, and those between it and its authority; Key its
	// key. There are both or none.
	Cert, Key string
}

// Certificates are what the files hold. Each handshake reads them again. Contents that
// cannot be used, such as half of a file that is being written, change nothing: what was
// read last counts on, and the log says so, once for such contents.
//
// The methods may be called in parallel.
type Certificates struct {
	authorities *source[*x509.CertPool]   // nil for the system's
	client      *source[*tls.Certificate] // nil for none
}

// New reads the files. The error joins all mistakes, each beginning with the key of the
// configuration, such as tls.ca_file.
func New(files Files, logger *slog.Logger) (*Certificates, error) {
	c := new(Certificates)
	var mistakes []error
	if files.CA != "" {
		c.authorities = newSource(logger, parseAuthorities, files.CA)
		if err := c.authorities.read(); err != nil {
			mistakes = append(mistakes, fmt.Errorf("tls.ca_file: %w", err))
		}
	}
	switch {
	case files.Cert == "" && files.Key == "":
	case files.Key == "":
		mistakes = append(mistakes, errors.New("tls.key_file: is missing, and tls.cert_file is given"))
	case files.Cert == "":
		mistakes = append(mistakes, errors.New("tls.cert_file: is missing, and tls.key_file is given"))
	default:
		c.client = newSource(logger, parsePair, files.Cert, files.Key)
		if err := c.client.read(); err != nil {
			mistakes = append(mistakes, fmt.Errorf("tls.cert_file: %w", err))
		}
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return c, nil
}

// Apply has a client's config verify servers by the authorities, and show the
// certificate; what there is no file for stays as it is in the config.
//
// The config may serve any number of handshakes. Set its ServerName before: without it
// a server's name is known from the handshake, but an IP address is not, and such a
// server is refused.
func (c *Certificates) Apply(config *tls.Config) {
	if c.client != nil {
		config.Certificates = nil
		config.GetClientCertificate = c.show
	}
	if c.authorities != nil {
		// crypto/tls takes one pool for all handshakes, so the same verification happens
		// here, by the pool of the moment. VerifyConnection runs in each handshake,
		// resumed ones too.
		config.RootCAs = nil
		config.InsecureSkipVerify = true
		name := config.ServerName
		config.VerifyConnection = func(state tls.ConnectionState) error { return c.verify(name, state) }
	}
}

// show returns the certificate, or an empty one if the server does not take it, as
// crypto/tls does with Config.Certificates.
func (c *Certificates) show(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair := c.client.current()
	if request.SupportsCertificate(pair) != nil {
		return new(tls.Certificate), nil
	}
	return pair, nil
}

var errNoName = errors.New("x509: neither the configuration nor the handshake names the server, so its certificate cannot be verified")

// verify is what crypto/tls does unless InsecureSkipVerify is set.
func (c *Certificates) verify(name string, state tls.ConnectionState) error {
	if name == "" {
		name = state.ServerName
	}
	if name == "" {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: errNoName}
	}
	options := x509.VerifyOptions{Roots: c.authorities.current(), DNSName: name, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] { // a server always shows one
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
		return nil, errors.New("holds no certificate in PEM form")
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

// blocksOf refuses a file that ends within a block: the rest of it is being written.
func blocksOf(text []byte) (blocks []*pem.Block, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		blocks, text = append(blocks, block), rest
	}
	if bytes.Contains(text, []byte("-----BEGIN ")) {
		return nil, errors.New("ends within a certificate")
	}
	return blocks, nil
}
