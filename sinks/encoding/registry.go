package encoding

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/internal/retryafter"
)

const (
	// patience limits one question to the registry, with all its requests.
	patience = 10 * time.Second
	// pause is how long a failure is remembered. Then the next delivery asks again.
	pause = time.Second
	// maxBody is how many bytes of an answer are read. One has a schema and its id at most.
	maxBody = 4 << 20
	// maxMessage is how many bytes of the registry's own words an error has.
	maxMessage = 2 << 10
	// maxTarget is how many bytes of the target of a redirect an error has.
	maxTarget = 200
)

// registry asks a schema registry. It is safe for concurrent use.
type registry struct {
	client      *sr.Client
	credentials redact.Credentials
	register    bool
	close       func()
	warn        func() // logs once what is dangerous; not before deliveries, since New is also called to look at a configuration
}

func newRegistry(in sinks.Instance, c Config) (*registry, error) {
	httpClient, closeIdle, err := c.Registry.httpClient(in)
	if err != nil {
		return nil, err
	}
	options := []sr.ClientOpt{sr.URLs(c.Registry.URL), sr.HTTPClient(httpClient), sr.UserAgent("waybill"), sr.LogLevel(sr.LogLevelNone)}
	switch auth := c.Registry.Auth; {
	case auth.Token != "":
		options = append(options, sr.BearerToken(auth.Token))
	case auth.User != "":
		options = append(options, sr.BasicAuth(auth.User, auth.Password))
	}
	client, err := sr.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("encoding.registry: %w", err)
	}
	auth := c.Registry.Auth
	r := &registry{client: client, credentials: redact.New(auth.Password, auth.Token), register: c.Register, close: closeIdle, warn: func() {}}
	if u, err := url.Parse(c.Registry.URL); err == nil && u.Scheme == "http" && auth != (Auth{}) && in.Logger != nil {
		r.warn = sync.OnceFunc(func() {
			in.Logger.Warn("the password or token is sent to the schema registry in clear text, because encoding.registry.url is not https")
		})
	}
	return r, nil
}

// httpClient returns the client for requests, and what closes its idle connections.
func (r *Registry) httpClient(in sinks.Instance) (*http.Client, func(), error) {
	if in.HTTPClient != nil {
		if r.TLS != (TLS{}) {
			return nil, nil, errors.New("encoding.registry.tls: the connections are made by the program's HTTP client; leave it out")
		}
		bounded := *in.HTTPClient
		if bounded.Transport == nil {
			bounded.Transport = http.DefaultTransport
		}
		bounded.Transport, bounded.CheckRedirect = limited{bounded.Transport}, noRedirects
		return &bounded, func() {}, nil
	}
	logger := in.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	files, err := r.TLS.files(logger)
	if err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding.registry.url: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.TLS.ServerName}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	files.Apply(config)
	dial := in.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: patience / 2}).DialContext
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: patience / 2, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: limited{transport}, CheckRedirect: noRedirects}, transport.CloseIdleConnections, nil
}

// noRedirects follows none. A client would send the credentials to the same host again, even without TLS.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// limited is a transport whose answers end after maxBody bytes. It stores their headers for the caller.
type limited struct{ http.RoundTripper }

// headerKey is the key of a *http.Header in a request's context, which gets the headers of the answer.
type headerKey struct{}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if header, ok := r.Context().Value(headerKey{}).(*http.Header); ok {
		*header = response.Header
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxBody), response.Body}
	return response, nil
}

// idOf returns the id of a schema under a subject, and registers the schema if that is configured.
func (r *registry) idOf(ctx context.Context, subject string, schema sr.Schema) (id int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.warn()
	var header http.Header
	ctx = context.WithValue(ctx, headerKey{}, &header)
	doing := "looking up"
	if r.register {
		doing = "registering"
		id, err = r.client.RegisterSchema(ctx, subject, schema, -1, -1)
	} else {
		id, err = r.lookUp(ctx, subject, schema)
	}
	switch {
	case err != nil:
	case id <= 0:
		err = errors.New("its answer has no id of a schema")
	case id > math.MaxInt32:
		err = fmt.Errorf("its answer has the id %d, and the wire format has ids of 32 bits", id)
	}
	if err != nil {
		return 0, r.explain(ctx, doing, subject, schema, err, header)
	}
	return id, nil
}

// lookUp looks for the schema as it is, and then for its normalized form: the same with other spaces or
// another order of its parts.
func (r *registry) lookUp(ctx context.Context, subject string, schema sr.Schema) (int, error) {
	found, err := r.client.LookupSchema(ctx, subject, schema)
	if answer := answerOf(err); answer != nil && answer.ErrorCode == sr.ErrSchemaNotFound.Code {
		normalized, again := r.client.LookupSchema(sr.WithParams(ctx, sr.Normalize), subject, schema)
		if again == nil {
			return normalized.ID, nil
		}
	}
	return found.ID, err
}

// answerOf returns the registry's answer in an error; nil if there is none.
func answerOf(err error) *sr.ResponseError {
	answer := new(sr.ResponseError)
	if !errors.As(err, &answer) {
		return nil
	}
	return answer
}

// explain returns an error with its class, and with what can be done about it.
func (r *registry) explain(ctx context.Context, doing, subject string, schema sr.Schema, err error, header http.Header) error {
	doing = fmt.Sprintf("%s the schema of the subject %q", doing, subject)
	answer := answerOf(err)
	if answer == nil {
		return sinks.Unavailable(fmt.Errorf("%w: %s: %w", ErrRegistry, doing, r.credentials.Error(err)))
	}
	said := answer.Error()
	var kind error
	hint := ""
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests:
		err := sinks.WithAnswer(fmt.Errorf("%w: %s: HTTP 429", ErrRegistry, doing), r.clean(said))
		if until, ok := retryafter.Parse(header.Get("Retry-After"), time.Now()); ok {
			return sinks.Throttled(until, err)
		}
		return sinks.Unavailable(err)
	case code < http.StatusBadRequest:
		said = "" // it has the target
		kind, hint = ErrRegistry, fmt.Sprintf("; the registry redirects%s, which is not followed; check encoding.registry.url", target(header))
	case code == http.StatusNotFound && answer.ErrorCode/100 == http.StatusNotFound:
		kind, hint = ErrNotRegistered, "; register it, or set encoding.register: true"
	case code == http.StatusNotFound:
		kind, hint = ErrRegistry, "; is encoding.registry.url right?"
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		kind, hint = ErrRegistry, "; is encoding.registry.auth right, and may it do this?"
	case code == http.StatusConflict:
		kind, hint = ErrRefused, "; change the schema, or the compatibility of the subject"
		said = strings.Join(append([]string{said}, r.incompatibilities(ctx, subject, schema)...), "; ")
	case code == http.StatusUnprocessableEntity:
		kind = ErrRefused
	default:
		kind = ErrRegistry
	}
	status := fmt.Sprintf("HTTP %d", answer.StatusCode)
	if answer.ErrorCode != 0 && answer.ErrorCode != answer.StatusCode {
		status += fmt.Sprintf(", error %d", answer.ErrorCode)
	}
	explained := fmt.Errorf("%w: %s: %s%s", kind, doing, status, hint)
	if errors.Is(kind, ErrRefused) {
		// No delivery is parked that could show an answer, and the registry has seen only the schema.
		return sinks.Unavailable(fmt.Errorf("%w: %s", explained, r.clean(said)))
	}
	return sinks.Unavailable(sinks.WithAnswer(explained, r.clean(said)))
}

// target says where a redirect leads, without what may be secret; "" if that is not known.
func target(header http.Header) string {
	u, err := url.Parse(header.Get("Location"))
	if err != nil || u.Host == "" {
		return ""
	}
	return " to " + line.Of((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), maxTarget)
}

// clean returns the registry's own words for an error: on one line, cut off and without credentials.
func (r *registry) clean(said string) string { return line.Of(r.credentials.Text(said), maxMessage) }

// incompatibilities asks why a schema is incompatible. Registries that do not know return none.
func (r *registry) incompatibilities(ctx context.Context, subject string, schema sr.Schema) []string {
	const allThatMatter = -2 // the versions that the subject's compatibility is about
	result, err := r.client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, allThatMatter, schema)
	if err != nil {
		return nil
	}
	return result.Messages
}

// checkHealth makes a request that changes nothing.
func (r *registry) checkHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var header http.Header
	_, err := r.client.SupportedTypes(context.WithValue(ctx, headerKey{}, &header))
	if answer := answerOf(err); answer != nil {
		if answer.StatusCode == http.StatusNotFound { // older registries do not have this request
			return nil
		}
		return r.explain(ctx, "asking about", "", sr.Schema{}, err, header)
	}
	if err != nil {
		return sinks.Unavailable(fmt.Errorf("%w: %w", ErrRegistry, r.credentials.Error(err)))
	}
	return nil
}
