// Package access has the settings and errors that the sinks of AWS share: region, endpoint and credentials.
package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"github.com/waybill-go/waybill/sinks"
)

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 10 * time.Second

// ErrClosed means that the sink is closed.
var ErrClosed = errors.New("the sink is closed")

// connections is how many idle connections to an endpoint are kept.
const connections = 256

// Config has the settings of a sink for its connection to AWS. Every zero field means what the SDK does without it:
// it reads the environment, the files of ~/.aws, a web identity, and the metadata of containers and instances.
type Config struct {
	Region               string        `yaml:"region" doc:"Region of the service, such as eu-central-1. Default: AWS_REGION or that of the profile"`
	Endpoint             string        `yaml:"endpoint" doc:"URL of the service, for emulators and private endpoints, such as http://127.0.0.1:5000. Default: that of the region"`
	Profile              string        `yaml:"profile" doc:"Profile in the files of ~/.aws. Default: AWS_PROFILE or default"`
	AccessKeyID          string        `yaml:"access_key_id" doc:"Id of an access key. Default: credentials that the SDK finds: variables, a profile, a web identity, or the role of the container or instance"`
	SecretAccessKey      string        `yaml:"secret_access_key" secret:"true" doc:"Secret of the access key"`
	SessionToken         string        `yaml:"session_token" secret:"true" doc:"Session token of a temporary access key"`
	RoleARN              string        `yaml:"role_arn" doc:"Role that the sink assumes with its credentials, such as arn:aws:iam::123456789012:role/outbox"`
	ExternalID           string        `yaml:"external_id" doc:"External id that the role's trust policy asks for"`
	WebIdentityTokenFile string        `yaml:"web_identity_token_file" doc:"File with the token of an OIDC provider, with which the sink assumes the role. It is read again for each session. Default: AWS_WEB_IDENTITY_TOKEN_FILE"`
	Timeout              time.Duration `yaml:"timeout" doc:"How long a request may take, with finding credentials. At least 100ms, and less than the sink's timeout"`
}

// SetDefaults sets Timeout to 10 s.
func (c *Config) SetDefaults() {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
}

// Parameters sets Region, Endpoint, Profile and RoleARN to the parameters of an address, such as
// region=eu-central-1&profile=shop. It returns all mistakes, joined. Each begins with the parameter.
func (c *Config) Parameters(query string) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	parameters := map[string]*string{"region": &c.Region, "endpoint": &c.Endpoint, "profile": &c.Profile, "role_arn": &c.RoleARN}
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := parameters[name]
		if !known || len(given[name]) > 1 {
			mistakes = append(mistakes, fmt.Errorf("%s: is unknown or there twice; the parameters are endpoint, profile, region and role_arn", name))
			continue
		}
		*field = given.Get(name)
	}
	return errors.Join(mistakes...)
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	var mistakes []error
	mistake := func(text string) { mistakes = append(mistakes, errors.New(text)) }
	if u, err := url.Parse(c.Endpoint); c.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		mistake("endpoint: is not a URL such as http://127.0.0.1:5000")
	} else if c.Endpoint != "" && u.User != nil {
		mistake("endpoint: has a user; use access_key_id and secret_access_key")
	}
	switch {
	case c.AccessKeyID == "" && (c.SecretAccessKey != "" || c.SessionToken != ""):
		mistake("access_key_id: is missing, but its secret is set")
	case c.AccessKeyID != "" && c.SecretAccessKey == "":
		mistake("secret_access_key: is missing, but access_key_id is set")
	case c.AccessKeyID != "" && c.WebIdentityTokenFile != "":
		mistake("web_identity_token_file: is given besides access_key_id; use one of them")
	}
	if c.Region != "" && !legalRegion.MatchString(c.Region) {
		mistake(fmt.Sprintf("region: %q is not the name of a region, such as eu-central-1", c.Region))
	}
	if c.RoleARN != "" && !strings.HasPrefix(c.RoleARN, "arn:") {
		mistake("role_arn: is not an ARN such as arn:aws:iam::123456789012:role/outbox")
	}
	if c.RoleARN == "" && (c.ExternalID != "" || c.WebIdentityTokenFile != "") {
		mistake("role_arn: is missing; external_id and web_identity_token_file are for it")
	}
	if c.ExternalID != "" && c.WebIdentityTokenFile != "" {
		mistake("external_id: is for a role that is assumed without a web identity")
	}
	if c.Timeout < 100*time.Millisecond || c.Timeout > time.Hour {
		mistake(fmt.Sprintf("timeout: %s is outside 100ms..1h", c.Timeout))
	}
	return errors.Join(mistakes...)
}

var (
	legalRegion = regexp.MustCompile(`^[a-z0-9-]+$`)
	regionOfARN = regexp.MustCompile(`^arn:[a-z-]+:[a-z]+:([a-z0-9-]+):`)
)

// In sets the region to that of an ARN, if there is none. Every sink whose destination may be an ARN calls it before it
// validates.
func (c *Config) In(arn string) {
	if parts := regionOfARN.FindStringSubmatch(arn); parts != nil && c.Region == "" {
		c.Region = parts[1]
	}
}

// Check returns why a destination cannot be one of the region: it is the ARN of another one. The service would take one of
// the same name here for it.
func (c *Config) Check(arn string) error {
	parts := regionOfARN.FindStringSubmatch(arn)
	switch {
	case parts != nil && c.Region == "":
		return errors.New("is an ARN that comes from data; set region, which must be that of the ARN")
	case parts != nil && parts[1] != c.Region:
		return fmt.Errorf("%s is in the region %s, but region is %s", arn, parts[1], c.Region)
	}
	return nil
}

// Client makes the client of a service when it is needed first, and again after its credentials were refused, so that
// rotated ones are found. Its methods are safe for concurrent use.
type Client[C any] struct {
	config Config
	in     sinks.Instance
	make   func(aws.Config) C
	life   context.Context // ends with Close
	end    context.CancelFunc

	mu      sync.Mutex
	current *session[C] // nil before the first call, and after credentials were refused
}

type session[C any] struct {
	client      C
	credentials aws.CredentialsProvider
	http        *http.Client // nil if the program gave it
	ended       atomic.Bool
}

// end closes the connections that are not in use. Calls in flight close theirs.
func (s *session[C]) end() {
	s.ended.Store(true)
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// NewClient returns the client that make makes for a configuration. It connects to nothing.
func NewClient[C any](in sinks.Instance, c Config, make func(aws.Config) C) *Client[C] {
	client := &Client[C]{config: c, in: in, make: make}
	client.life, client.end = context.WithCancel(context.Background())
	return client
}

// Call calls a service with a client that has credentials, within the timeout. The SDK repeats nothing: the engine
// does. The error of call is that of [Codes.Classify], and that of missing credentials is unavailable.
func (c *Client[C]) Call(ctx context.Context, codes Codes, call func(ctx context.Context, client C) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := c.call(bounded, codes, call)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case c.life.Err() != nil:
		return sinks.Unavailable(ErrClosed)
	case bounded.Err() != nil && CodeOf(err) == "":
		return sinks.Unavailable(fmt.Errorf("no answer in time: %w", err))
	}
	return err
}

func (c *Client[C]) call(ctx context.Context, codes Codes, call func(ctx context.Context, client C) error) error {
	s, err := c.session(ctx)
	if err != nil {
		return unfound(err)
	}
	defer func() {
		if s.ended.Load() {
			s.end()
		}
	}()
	if _, err := s.credentials.Retrieve(ctx); err != nil {
		c.forget(s)
		return unfound(err)
	}
	err = codes.Classify(call(ctx, s.client))
	if refused[CodeOf(err)] {
		c.forget(s)
	}
	return err
}

func unfound(err error) error {
	return sinks.Unavailable(fmt.Errorf("no credentials or region for AWS: %w", err))
}

func (c *Client[C]) session(ctx context.Context) (*session[C], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return c.current, nil
	}
	loaded, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	s := &session[C]{credentials: loaded.Credentials}
	if c.in.HTTPClient == nil {
		s.http = loaded.HTTPClient.(httpClient).Client
	}
	s.client = c.make(loaded)
	c.current = s
	return s, nil
}

// forget makes the next call find credentials again.
func (c *Client[C]) forget(s *session[C]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == s {
		c.current = nil
	}
	s.end()
}

// Close ends the calls in flight, and closes the connections.
func (c *Client[C]) Close() {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.end()
	}
}

// load finds region and credentials. It retrieves none, and assumes no role yet.
func (c *Client[C]) load(ctx context.Context) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(c.http()),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithAppID("waybill"),
		config.WithLogger(logging.LoggerFunc(c.log)),
	}
	if c.config.Region != "" {
		options = append(options, config.WithRegion(c.config.Region))
	}
	if c.config.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.config.Profile))
	}
	if c.config.AccessKeyID != "" {
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.config.AccessKeyID, c.config.SecretAccessKey, c.config.SessionToken)))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	switch {
	case err != nil:
		return aws.Config{}, err
	case loaded.Region == "":
		return aws.Config{}, errors.New("region: is missing, in the configuration as in AWS_REGION and the profile")
	}
	used := c.in.HTTPClient
	if buildable, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok { // which cannot close its connections
		used = &http.Client{
			Transport:     buildable.GetTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	loaded.HTTPClient = httpClient{used}
	if c.config.RoleARN != "" {
		loaded.Credentials = aws.NewCredentialsCache(c.role(sts.NewFromConfig(loaded)))
	}
	if c.config.Endpoint != "" { // after the client of STS has been made, which has another one
		loaded.BaseEndpoint = &c.config.Endpoint
		loaded.ConfigSources = append([]any{ownEndpoint{}}, loaded.ConfigSources...)
	}
	return loaded, nil
}

// log logs what the SDK says, for which an error is returned as well.
func (c *Client[C]) log(_ logging.Classification, format string, values ...any) {
	if c.in.Logger != nil {
		c.in.Logger.Debug(fmt.Sprintf(format, values...))
	}
}

// ownEndpoint keeps a client from using the endpoint of a service in the environment or in a profile, such as
// AWS_ENDPOINT_URL_SQS, which it prefers to BaseEndpoint.
type ownEndpoint struct{}

// GetIgnoreConfiguredEndpoints implements an interface of the SDK.
func (ownEndpoint) GetIgnoreConfiguredEndpoints(context.Context) (ignore, found bool, _ error) {
	return true, true, nil
}

func (c *Client[C]) role(client *sts.Client) aws.CredentialsProvider {
	name := "waybill-" + sessionName(c.in.Name)
	if c.config.WebIdentityTokenFile != "" {
		return stscreds.NewWebIdentityRoleProvider(client, c.config.RoleARN, stscreds.IdentityTokenFile(c.config.WebIdentityTokenFile),
			func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = name })
	}
	return stscreds.NewAssumeRoleProvider(client, c.config.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = name
		if c.config.ExternalID != "" {
			o.ExternalID = &c.config.ExternalID
		}
	})
}

// sessionName returns a text with only the characters of a session of a role: STS, AssumeRole, RoleSessionName.
func sessionName(name string) string {
	legal := strings.Map(func(r rune) rune {
		if r < 'a' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') || r > 'z' {
			return '-'
		}
		return r
	}, name)
	return legal[:min(len(legal), 50)]
}

// httpClient makes the requests of the SDK. The SDK closes a request's body as soon as the answer begins, when the
// goroutine of net/http that writes the request may still look for the end of that body. With its method WriteTo, a
// closed body then returns io.EOF, for which the connection is closed, and the rest of the answer is lost:
// https://github.com/aws/aws-sdk-go-v2/issues/2737. So requests have bodies without that method.
type httpClient struct{ *http.Client }

// Do makes a request.
func (c httpClient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context())
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.Client.Do(r)
}

// http returns the client with which the SDK begins. It adds the certificates of AWS_CA_BUNDLE.
func (c *Client[C]) http() aws.HTTPClient {
	if c.in.HTTPClient != nil {
		return c.in.HTTPClient
	}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
		if c.in.Dial != nil {
			t.DialContext = c.in.Dial
		}
	})
}
