// Package roots reads the authorities that a sink trusts in place of the system's.
package roots

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Read reads certificates in PEM form. A file without any is an error that names it.
func Read(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return pool, nil
}
