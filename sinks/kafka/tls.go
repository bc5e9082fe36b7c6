package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/sinks/internal/roots"
)

// TLS is how connections are encrypted, and the brokers verified.
type TLS struct {
	Enabled    bool   `yaml:"enabled" doc:"Encrypt connections and verify the brokers. The other keys of tls need it."`
	CAFile     string `yaml:"ca_file" content:"true" doc:"PEM file of the authorities to trust instead of the system's."`
	CertFile   string `yaml:"cert_file" content:"true" doc:"PEM file of the certificate, and those between it and its authority, that identifies the client to brokers."`
	KeyFile    string `yaml:"key_file" content:"true" doc:"PEM file of that certificate's key."`
	ServerName string `yaml:"server_name" doc:"Name that every broker's certificate must have. Default: the host that was connected to."`
	Insecure   bool   `yaml:"insecure" doc:"Do not verify the brokers' certificates: anyone on the network path can read and change everything, passwords too. For experiments only."`
}

// config returns what crypto/tls needs, nil without TLS. The error joins all
// mistakes.
func (t TLS) config() (*tls.Config, error) {
	if !t.Enabled {
		if t != (TLS{}) {
			return nil, errors.New("tls.enabled: is not set, and other keys of tls are; set tls.enabled: true")
		}
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	if t.CAFile != "" {
		trusted, err := roots.Read(t.CAFile)
		if err != nil {
			problem("tls.ca_file: %w", err)
		}
		conf.RootCAs = trusted
	}
	if t.Insecure && (t.CAFile != "" || t.ServerName != "") {
		problem("tls.insecure: verifies nothing, but tls.ca_file or tls.server_name says what to verify; keep one")
	}
	switch {
	case t.CertFile == "" && t.KeyFile == "":
	case t.KeyFile == "":
		problem("tls.key_file: is missing, and tls.cert_file is given")
	case t.CertFile == "":
		problem("tls.cert_file: is missing, and tls.key_file is given")
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

func (t TLS) validate() error {
	_, err := t.config()
	return err
}
