package connection

import (
	"crypto/tls"
	"errors"
	"log/slog"

	"github.com/waybill-go/waybill/sinks/internal/certificates"
)

// TLS has the settings of TLS to the brokers. The files are read again for each handshake, so
// that renewed certificates are used without a restart.
type TLS struct {
	Enabled    bool   `yaml:"enabled" doc:"Encrypt connections and verify the brokers. The other keys of tls need it"`
	CAFile     string `yaml:"ca_file" doc:"PEM file of the certificate authorities to trust, instead of the system's"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of the client's certificate, with its intermediate certificates"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of the private key of cert_file"`
	ServerName string `yaml:"server_name" doc:"Name that every broker's certificate must have. Default: the host of the connection"`
}

// encryption returns a function that makes the configuration of a handshake with a host; nil
// without TLS. given is the program's configuration, which may be nil. The error joins all
// mistakes.
func (t TLS) encryption(given *tls.Config, logger *slog.Logger) (func(host string) *tls.Config, error) {
	switch {
	case given != nil && t != (TLS{Enabled: t.Enabled}):
		return nil, errors.New("tls: the program has a TLSConfig, which replaces the keys of tls; leave them out")
	case given != nil:
		given = given.Clone()
	case !t.Enabled && t != (TLS{}):
		return nil, errors.New("tls.enabled: is not set, but other keys of tls are; set tls.enabled: true")
	case !t.Enabled:
		return nil, nil
	default:
		given = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	}
	files, err := certificates.New(certificates.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}, logger)
	if err != nil {
		return nil, err
	}
	return func(host string) *tls.Config {
		conf := given.Clone()
		if conf.ServerName == "" {
			conf.ServerName = host
		}
		files.Apply(conf)
		return conf
	}, nil
}
