package access_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

// caller returns the access key with which a client signs its requests, or an error of a call.
func caller(t *testing.T, c *access.Client[*sts.Client]) (key string, err error) {
	t.Helper()
	err = c.Call(t.Context(), nil, func(ctx context.Context, client *sts.Client) error {
		its, err := client.Options().Credentials.Retrieve(ctx)
		if err != nil {
			return err
		}
		key = its.AccessKeyID
		_, err = client.GetCallerIdentity(ctx, new(sts.GetCallerIdentityInput))
		return err
	})
	return key, err
}

func newClient(t *testing.T, endpoint string, set func(*access.Config)) *access.Client[*sts.Client] {
	t.Helper()
	c := access.Config{Region: awstest.Region, Endpoint: endpoint}
	if set != nil {
		set(&c)
	}
	c.SetDefaults()
	require.NoError(t, c.Validate())
	client := access.NewClient(sinks.Instance{Name: "Bestellungen größer"}, c, func(conf aws.Config) *sts.Client { return sts.NewFromConfig(conf) })
	t.Cleanup(client.Close)
	return client
}

func TestAKeyOfTheConfigurationIsUsed(t *testing.T) {
	key, err := caller(t, newClient(t, awstest.Moto(t), func(c *access.Config) { c.AccessKeyID, c.SecretAccessKey = "mine", "secret" }))
	require.NoError(t, err)
	require.Equal(t, "mine", key)
}

func TestARoleIsAssumed(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_STS", awstest.Moto(t))
	role := func(c *access.Config) { c.RoleARN, c.ExternalID = "arn:aws:iam::123456789012:role/outbox", "shop" }
	key, err := caller(t, newClient(t, awstest.Moto(t), role))
	require.NoError(t, err)
	require.Regexp(t, "^ASIA", key, "it is temporary")
}

func TestARoleIsAssumedWithAWebIdentity(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_STS", awstest.Moto(t))
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("a token"), 0o600))
	key, err := caller(t, newClient(t, awstest.Moto(t), func(c *access.Config) {
		c.RoleARN, c.WebIdentityTokenFile = "arn:aws:iam::123456789012:role/outbox", token
	}))
	require.NoError(t, err)
	require.Regexp(t, "^ASIA", key)
}

func TestARoleThatIsRefusedIsUnavailable(t *testing.T) {
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	t.Setenv("AWS_ENDPOINT_URL_STS", proxy.URL)
	proxy.Break(awstest.RefuseXML(http.StatusBadRequest, "ValidationError"))
	client := newClient(t, awstest.Moto(t), func(c *access.Config) { c.RoleARN = "arn:aws:iam::123456789012:role/outbox" })
	_, err := caller(t, client)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	proxy.Break(nil)
	_, err = caller(t, client)
	require.NoError(t, err)
}

func TestRotatedCredentialsAreFound(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(key string) {
		require.NoError(t, os.WriteFile(file, []byte("[default]\naws_access_key_id="+key+"\naws_secret_access_key=secret\n"), 0o600))
	}
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	client := newClient(t, proxy.URL, nil)
	write("old")
	key, err := caller(t, client)
	require.NoError(t, err)
	require.Equal(t, "old", key)

	write("new")
	proxy.Break(awstest.RefuseXML(http.StatusForbidden, "InvalidClientTokenId"))
	_, err = caller(t, client)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	proxy.Break(nil)
	key, err = caller(t, client)
	require.NoError(t, err)
	require.Equal(t, "new", key)
}

func TestWithoutARegionItIsUnavailable(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	_, err := caller(t, newClient(t, awstest.Moto(t), func(c *access.Config) { c.Region = "" }))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "region: is missing")
}

func TestTheTimeoutLimitsACall(t *testing.T) {
	proxy := awstest.NewProxy(t, awstest.Moto(t))
	proxy.Break(awstest.Hang)
	_, err := caller(t, newClient(t, proxy.URL, func(c *access.Config) { c.Timeout = 100 * time.Millisecond }))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestACallAfterCloseIsUnavailable(t *testing.T) {
	client := newClient(t, awstest.Moto(t), nil)
	client.Close()
	_, err := caller(t, client)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.True(t, errors.Is(err, access.ErrClosed))
}

func TestAnErrorThatHasAClassKeepsIt(t *testing.T) {
	err := access.Codes(nil).Classify(sinks.Permanent(errors.New("no")))
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(err))
	require.NoError(t, access.Codes(nil).Classify(nil))
}

// lateConn answers a write of the end of a request only some time after the answer has begun, and says so.
type lateConn struct {
	net.Conn
	begun, late chan struct{}
	once        sync.Once
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.once.Do(func() { close(c.begun) })
	return n, err
}

func (c *lateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, []byte("Action=GetCallerIdentity")) {
		<-c.begun
		time.Sleep(50 * time.Millisecond) // long enough for the SDK to close the body of the request
		close(c.late)
	}
	return n, err
}

func TestAnAnswerThatComesBeforeTheEndOfTheRequestIsReadWhole(t *testing.T) {
	late := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/xml")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-late:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	}))
	t.Cleanup(server.Close)
	c := access.Config{Region: awstest.Region, Endpoint: server.URL, AccessKeyID: "mine", SecretAccessKey: "secret"}
	c.SetDefaults()
	client := access.NewClient(sinks.Instance{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &lateConn{Conn: conn, begun: make(chan struct{}), late: late}, err
	}}, c, func(conf aws.Config) *sts.Client { return sts.NewFromConfig(conf) })
	t.Cleanup(client.Close)
	_, err := caller(t, client)
	require.NoError(t, err)
}
