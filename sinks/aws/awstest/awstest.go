// Package awstest starts servers that speak the protocols of AWS on this machine, and spoils their answers, for tests.
package awstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Region is the region of the servers.
const Region = "eu-central-1"

// patience is how long a server may take to start.
const patience = 2 * time.Minute

// moto is the URL of the server that Main started; "" if it is not installed.
var moto string

// Main starts moto, a server for all services, runs the tests of a package and returns their exit code. .ci/test-clouds
// installs it.
func Main(m *testing.M) int {
	for name, value := range map[string]string{ // nothing of the user's is used
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		_ = os.Setenv(name, value) // never fails for these names
	}
	program, err := installed("moto/bin/moto_server", "moto_server")
	if err != nil {
		return m.Run()
	}
	address, stop, err := serve(func(port string) *exec.Cmd {
		return exec.Command(program, "-H", "127.0.0.1", "-p", port)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	moto = "http://" + address
	return m.Run()
}

// Moto returns the URL of moto. It skips the test if it is not installed.
func Moto(t testing.TB) string {
	t.Helper()
	if moto == "" {
		t.Skip("moto is not installed: .ci/test-clouds installs it")
	}
	return moto
}

// ElasticMQ starts a server for SQS, and returns its URL. It skips the test if it is not installed.
func ElasticMQ(t testing.TB) string {
	t.Helper()
	jars, err := installed("elasticmq", "")
	java, missing := exec.LookPath("java")
	if err != nil || missing != nil {
		t.Skip("ElasticMQ is not installed: .ci/test-clouds installs it")
	}
	address, stop, err := serve(func(port string) *exec.Cmd {
		settings := fmt.Sprintf("include classpath(\"application.conf\")\nrest-sqs {bind-hostname = \"127.0.0.1\", bind-port = %s}\nnode-address.port = %[1]s\nrest-stats.enabled = false\n", port)
		file := filepath.Join(t.TempDir(), "elasticmq.conf")
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dconfig.file="+file, "-cp", filepath.Join(jars, "*"), "org.elasticmq.server.Main")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return "http://" + address
}

// Config returns the configuration of a client of a server.
func Config(endpoint string) aws.Config {
	return aws.Config{Region: Region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

// installed returns the path of a program: below .cache at the root of the repository, or in the PATH.
func installed(cached, program string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".cache", filepath.FromSlash(cached))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(program)
}

// serve starts a server on a free port, and waits until it answers.
func serve(command func(port string) *exec.Cmd) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	_ = l.Close() // the server listens there next
	log, err := os.CreateTemp("", "awstest")
	if err != nil {
		return "", nil, err
	}
	cmd := command(port)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says why it ended
		close(ended)
	}()
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = log.Close()
		_ = os.Remove(log.Name())
	}
	if err := answers(address, ended); err != nil {
		text, _ := os.ReadFile(log.Name()) // without it there are no lines
		stop()
		return "", nil, fmt.Errorf("%s: %w\n%s", cmd.Path, err, text)
	}
	return address, stop, nil
}

// answers waits until a server answers.
func answers(address string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			return response.Body.Close()
		}
		select {
		case <-ended:
			return errors.New("it ended while it started")
		case <-ctx.Done():
			return errors.New("it does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Proxy is a proxy in front of a server, which can spoil its answers.
type Proxy struct {
	URL   string
	fault atomic.Pointer[Fault]
}

// Fault is what a proxy does with a request. It reports whether it has answered it; otherwise the server does.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// NewProxy starts a proxy in front of the server at a URL, until the test ends.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := new(Proxy)
	forward := forwardTo(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := p.fault.Load(); fault != nil && (*fault)(w, r) {
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.URL = front.URL
	return p
}

func forwardTo(server *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = r.In.Host // which the signature covers
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
}

// InTurn returns the URL of a proxy that lets a server answer one request at a time, until the test ends. moto's streams
// lose records otherwise: two threads give them one sequence number.
func InTurn(t testing.TB, server string) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var turn sync.Mutex
	forward := forwardTo(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn.Lock()
		defer turn.Unlock()
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// Break makes requests go through a fault; nil ends it.
func (p *Proxy) Break(f Fault) {
	if f == nil {
		p.fault.Store(nil)
		return
	}
	p.fault.Store(&f)
}

// Refuse answers every request with an error, in the protocol of the request: the query protocol or JSON.
func Refuse(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be used again
		if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
			return RefuseXML(status, code)(w, r)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws#%s","message":"because of a test"}`, code)
		return true
	}
}

// RefuseXML answers every request with an error of AWS's query protocol, as STS and SNS do.
func RefuseXML(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>because of a test</Message></Error></ErrorResponse>`, code)
		return true
	}
}

// Cut closes the connection of every request without an answer; with answered, after the server has done what it asks.
func Cut(server string, answered bool) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if answered {
			request := r.Clone(r.Context())
			request.RequestURI = ""
			to, err := url.Parse(server)
			if err == nil {
				request.URL.Scheme, request.URL.Host = to.Scheme, to.Host
				if response, err := http.DefaultClient.Do(request); err == nil {
					_ = response.Body.Close()
				}
			}
		}
		panic(http.ErrAbortHandler)
	}
}

// Hang answers no request until it is cancelled.
func Hang(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of a connection only then
	<-r.Context().Done()
	return true
}

// Edit passes a request of a JSON protocol to a server, after edit has changed what it asks, and its answer, after the
// function that edit returns has changed that. A request for which edit returns nil is not spoiled.
func Edit(server string, edit func(request map[string]any) (answer func(map[string]any))) Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		text, _ := io.ReadAll(r.Body) // a request that ends is answered in vain
		r.Body = io.NopCloser(bytes.NewReader(text))
		var request, answer map[string]any
		if json.Unmarshal(text, &request) != nil {
			return false
		}
		change := edit(request)
		if change == nil {
			return false
		}
		text, _ = json.Marshal(request) // never fails for what was JSON
		edited, err := http.NewRequestWithContext(r.Context(), r.Method, server+r.URL.Path, bytes.NewReader(text))
		if err != nil {
			return false
		}
		edited.Header = r.Header.Clone()
		response, err := http.DefaultClient.Do(edited)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&answer) == nil {
			change(answer)
		}
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		_ = json.NewEncoder(w).Encode(answer)
		return true
	}
}
