package certificates_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/internal/certificates"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
)

// folder has the files of one test.
type folder struct {
	t    *testing.T
	path string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

func (f folder) file(name string) string { return filepath.Join(f.path, name) }

func (f folder) write(name string, text []byte) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.file(name), text, 0o600))
}

func (f folder) replace(name string, text []byte) {
	f.t.Helper()
	f.write(name+".new", text)
	require.NoError(f.t, os.Rename(f.file(name+".new"), f.file(name)))
}

// load writes all files and loads them.
func (f folder) load(ca, cert, key []byte, logger *slog.Logger) *certificates.Certificates {
	f.t.Helper()
	f.write("ca", ca)
	f.write("cert", cert)
	f.write("key", key)
	c, err := certificates.New(certificates.Files{CA: f.file("ca"), Cert: f.file("cert"), Key: f.file("key")}, logger)
	require.NoError(f.t, err)
	return c
}

// server accepts TLS connections on the loopback interface. For each byte that it reads, it writes the
// name in the client's certificate.
type server struct {
	address string
	mu      sync.Mutex
	config  *tls.Config
}

func (s *server) set(config *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

// newServer starts a server that asks clients for a certificate of an authority.
func newServer(t *testing.T, of *certtest.Authority) *server {
	s := new(server)
	s.set(serving(of))
	config := &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.config, nil
		},
	}
	s.address = servertest.Serve(t, func(conn net.Conn) { serve(tls.Server(conn, config)) })
	return s
}

func serve(conn *tls.Conn) {
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, one); err != nil {
			return
		}
		name := "nobody"
		if shown := conn.ConnectionState().PeerCertificates; len(shown) > 0 {
			name = shown[0].Subject.CommonName
		}
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			return
		}
	}
}

// serving returns a server's config with a certificate of an authority.
func serving(of *certtest.Authority) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{of.Issue("shop.example", "127.0.0.1")},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: of.Pool(),
	}
}

// client is the sink's side of connections. Its config serves all handshakes.
type client struct {
	server *server
	config *tls.Config
}

func newClient(t *testing.T, s *server, c *certificates.Certificates, name string) *client {
	config := &tls.Config{ServerName: name}
	c.Apply(config)
	return &client{s, config}
}

func (c *client) connect(t *testing.T) (*tls.Conn, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", c.server.address, c.config)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// ask returns the name that the server saw on the connection.
func ask(t *testing.T, conn *tls.Conn) string {
	t.Helper()
	_, err := conn.Write([]byte("?"))
	require.NoError(t, err)
	var answer strings.Builder
	for one := make([]byte, 1); ; {
		_, err := io.ReadFull(conn, one)
		require.NoError(t, err)
		if one[0] == '\n' {
			return answer.String()
		}
		answer.Write(one)
	}
}

// asked calls ask for a new connection.
func (c *client) asked(t *testing.T) string {
	t.Helper()
	conn, err := c.connect(t)
	require.NoError(t, err)
	return ask(t, conn)
}

func newLogger() (*slog.Logger, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return slog.New(slog.NewTextHandler(log, nil)), log
}

func TestARenewedCertificateIsUsedFromTheNextHandshakeOn(t *testing.T) {
	for name, put := range map[string]func(folder, string, []byte){"renamed": folder.replace, "in place": folder.write} {
		t.Run(name, func(t *testing.T) {
			of, dir := certtest.New(), newFolder(t)
			cert, key := certtest.EncodePair(of.Issue("first"))
			logger, log := newLogger()
			c := dir.load(certtest.Encode(of.Certificate), cert, key, logger)
			client := newClient(t, newServer(t, of), c, "127.0.0.1")
			open, err := client.connect(t)
			require.NoError(t, err)
			require.Equal(t, "first", ask(t, open))

			cert, key = certtest.EncodePair(of.Issue("second"))
			put(dir, "cert", cert)
			require.Equal(t, "first", client.asked(t), "while the key still belongs to the old certificate")
			require.Equal(t, "first", client.asked(t))
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "one warning for the same contents")
			put(dir, "key", key)
			require.Equal(t, "second", client.asked(t))
			require.Equal(t, "second", client.asked(t))
			require.Equal(t, 1, strings.Count(log.String(), "level=INFO"))
			require.Equal(t, "first", ask(t, open), "an open connection is not affected")
		})
	}
}

func TestAnAuthorityIsTrustedWhileItIsInTheFile(t *testing.T) {
	before, after, dir := certtest.New(), certtest.New(), newFolder(t)
	dir.write("ca", certtest.Encode(before.Certificate))
	logger, log := newLogger()
	c, err := certificates.New(certificates.Files{CA: dir.file("ca")}, logger)
	require.NoError(t, err)
	s := newServer(t, before)
	client := newClient(t, s, c, "127.0.0.1")
	require.Equal(t, "nobody", client.asked(t))

	s.set(serving(after))
	_, err = client.connect(t)
	require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	dir.replace("ca", certtest.Encode(after.Certificate))
	client.asked(t)
	s.set(serving(before))
	_, err = client.connect(t)
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError), "the old authority is no longer trusted")
	require.NotContains(t, log.String(), "WARN")
}

func TestUnusableFilesChangeNothing(t *testing.T) {
	of, dir := certtest.New(), newFolder(t)
	ca := append(certtest.Encode(certtest.New().Certificate), certtest.Encode(of.Certificate)...)
	cert, key := certtest.EncodePair(of.Issue("shop"))
	logger, log := newLogger()
	c := dir.load(ca, cert, key, logger)
	client := newClient(t, newServer(t, of), c, "127.0.0.1")
	require.NotContains(t, log.String(), "level=")

	for name, spoil := range map[string]func(){
		"authorities missing":      func() { require.NoError(t, os.Remove(dir.file("ca"))) },
		"no authorities":           func() { dir.write("ca", nil) },
		"one authority and a half": func() { dir.write("ca", ca[:len(ca)-40]) },
		"half a certificate":       func() { dir.write("cert", cert[:len(cert)/2]) },
		"half of its chain":        func() { dir.write("cert", append(bytes.Clone(cert), ca[:100]...)) },
		"certificate missing":      func() { require.NoError(t, os.Remove(dir.file("cert"))) },
		"no key":                   func() { dir.write("key", nil) },
	} {
		log.Reset()
		spoil()
		for range 3 {
			require.Equal(t, "shop", client.asked(t), name)
		}
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s: %s", name, log)
		require.NotContains(t, log.String(), "PRIVATE", name)
		dir.write("ca", ca)
		dir.write("cert", cert)
		dir.write("key", key)
		require.Equal(t, "shop", client.asked(t), name)
		require.Equal(t, 1, strings.Count(log.String(), "level="), "%s: contents that are back are no change: %s", name, log)
	}
}

func TestAServerMustHaveTheRequestedName(t *testing.T) {
	of, dir := certtest.New(), newFolder(t)
	dir.write("ca", certtest.Encode(of.Certificate))
	c, err := certificates.New(certificates.Files{CA: dir.file("ca")}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := newServer(t, of)
	for _, name := range []string{"127.0.0.1", "shop.example", "SHOP.example", "shop.example."} {
		require.Equal(t, "nobody", newClient(t, s, c, name).asked(t), name)
	}
	for _, name := range []string{"other.example", "127.0.0.2", "::1"} {
		_, err := newClient(t, s, c, name).connect(t)
		require.ErrorAs(t, err, new(x509.HostnameError), name)
	}

	// This config is for many servers, like that of http.Transport, which sets the name in copies.
	config := new(tls.Config)
	c.Apply(config)
	for name, reason := range map[string]string{"shop.example": "", "other.example": "is valid for", "127.0.0.1": "names the server"} {
		of := config.Clone()
		of.ServerName = name
		_, err := (&client{s, of}).connect(t)
		if reason == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, reason, "a server whose name is unknown is refused")
		}
	}
}

func TestACertificateThatTheServerDoesNotAcceptIsNotSent(t *testing.T) {
	of, dir := certtest.New(), newFolder(t)
	cert, key := certtest.EncodePair(certtest.New().Issue("stranger"))
	c := dir.load(certtest.Encode(of.Certificate), cert, key, slog.New(slog.DiscardHandler))
	require.Equal(t, "nobody", newClient(t, newServer(t, of), c, "127.0.0.1").asked(t))
}

func TestSettingsWithoutAFileAreUnchanged(t *testing.T) {
	c, err := certificates.New(certificates.Files{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	config := new(tls.Config)
	c.Apply(config)
	require.Equal(t, new(tls.Config), config)
}

func TestAllMistakesAreReportedWithTheirKeys(t *testing.T) {
	of, dir := certtest.New(), newFolder(t)
	cert, key := certtest.EncodePair(of.Issue("shop"))
	_, otherKey := certtest.EncodePair(of.Issue("other"))
	dir.write("cert", cert)
	dir.write("key", key)
	dir.write("other", otherKey)
	dir.write("half", cert[:len(cert)/2])
	dir.write("text", []byte("no certificate"))
	for text, files := range map[string]certificates.Files{
		"tls.ca_file: open " + dir.file("gone"):                {CA: dir.file("gone")},
		"tls.ca_file: " + dir.file("half") + ": ends inside":   {CA: dir.file("half")},
		"tls.ca_file: " + dir.file("text") + ": contains no":   {CA: dir.file("text")},
		"tls.key_file: is missing":                             {Cert: dir.file("cert")},
		"tls.cert_file: is missing":                            {Key: dir.file("key")},
		"tls.cert_file: open " + dir.file("gone"):              {Cert: dir.file("gone"), Key: dir.file("key")},
		dir.file("cert") + " with " + dir.file("other") + ": ": {Cert: dir.file("cert"), Key: dir.file("other")},
	} {
		_, err := certificates.New(files, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, text)
	}
	_, err := certificates.New(certificates.Files{CA: dir.file("gone"), Key: dir.file("key")}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "tls.ca_file: ")
	require.ErrorContains(t, err, "tls.cert_file: ")
	require.True(t, errors.Is(err, os.ErrNotExist))
}

func TestHandshakesMayRunInParallelWithChanges(t *testing.T) {
	of, dir := certtest.New(), newFolder(t)
	cert, key := certtest.EncodePair(of.Issue("shop"))
	c := dir.load(certtest.Encode(of.Certificate), cert, key, slog.New(slog.DiscardHandler))
	client := newClient(t, newServer(t, of), c, "127.0.0.1")
	var shaking sync.WaitGroup
	for range 4 {
		shaking.Go(func() {
			for range 5 {
				conn, err := tls.Dial("tcp", client.server.address, client.config)
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			}
		})
	}
	for range 20 {
		dir.write("cert", cert)
		dir.write("ca", certtest.Encode(of.Certificate))
	}
	shaking.Wait()
}
