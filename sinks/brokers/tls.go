// Package brokers has what the kinds rabbitmq, nats and redis share. They are in a separate module,
// so that other programs do not depend on their clients.
//
// Each has a kind for the configuration file, which a program adds with
// program.Kinds(rabbitmq.Kind()), and a sink for Go programs. The program cmd/waybill of this
// module is the waybill command with all of them.
package brokers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS has the settings for verifying a broker and for client certificates. The zero value trusts
// the system's authorities.
type TLS struct {
	CAFile     string `yaml:"ca_file" content:"true" doc:"PEM file of the certificate authorities to trust, instead of the system's"`
	CertFile   string `yaml:"cert_file" content:"true" doc:"PEM file of the client's certificate, with its intermediate certificates"`
	KeyFile    string `yaml:"key_file" content:"true" doc:"PEM file of the private key of cert_file"`
	ServerName string `yaml:"server_name" doc:"Name that the broker's certificate must have. Default: the host of the URL"`
	Insecure   bool   `yaml:"insecure" doc:"Do not verify the broker's certificate. Anyone on the network path can then read and change everything, including passwords. For experiments only"`
}

// Config returns the TLS configuration; nil if connections are not encrypted. Its error joins all
// mistakes. It is a mistake to have settings without encryption.
func (t TLS) Config(encrypted bool) (*tls.Config, error) {
	if !encrypted {
		if t != (TLS{}) {
			return nil, errors.New("tls: is set, but the URL's scheme is one without TLS")
		}
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	if t.CAFile != "" {
		trusted, err := authorities(t.CAFile)
		if err != nil {
			problem("tls.ca_file: %w", err)
		}
		conf.RootCAs = trusted
	}
	if t.Insecure && (t.CAFile != "" || t.ServerName != "") {
		problem("tls.insecure: turns verification off, but tls.ca_file and tls.server_name are for verification; leave one out")
	}
	switch {
	case t.CertFile == "" && t.KeyFile == "":
	case t.KeyFile == "":
		problem("tls.key_file: is missing, but tls.cert_file is set")
	case t.CertFile == "":
		problem("tls.cert_file: is missing, but tls.key_file is set")
	default:
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			problem("tls.cert_file: %s with %s: %w", t.CertFile, t.KeyFile, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return conf, nil
}

func authorities(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate in PEM form", path)
	}
	return pool, nil
}
