// Package certtest makes certificates for tests of TLS. Its functions panic if that fails.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority. Its name is unique, since clients know by it whether a server accepts their
// certificates.
func New() *Authority {
	a := new(Authority)
	made := a.Issue("authority " + rand.Text())
	a.Certificate, a.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// Issue returns a certificate for a client or a server with these names and IP addresses.
func (a *Authority) Issue(name string, more ...string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: a.Certificate == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range append(more, name) {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	parent, signer := template, key // of the authority itself
	if a.Certificate != nil {
		parent, signer = a.Certificate, a.key
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}

// Pool returns a pool of this authority only.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// Write writes a certificate to a file in an existing folder, and returns its path.
func Write(folder string, certificate *x509.Certificate) (file string) {
	return write(folder, "ca.pem", Encode(certificate))
}

// WritePair writes a certificate and its key to files in an existing folder, and returns their paths.
func WritePair(folder string, pair tls.Certificate) (certFile, keyFile string) {
	cert, key := EncodePair(pair)
	return write(folder, "cert.pem", cert), write(folder, "key.pem", key)
}

// Encode returns a certificate in PEM form.
func Encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// EncodePair returns a certificate and its key in PEM form.
func EncodePair(pair tls.Certificate) (cert, key []byte) {
	der := must(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))
	return Encode(pair.Leaf), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func write(folder, name string, text []byte) string {
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		panic(err)
	}
	return file
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
