package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// project is that of all tests.
const project = "shop"

// authority signs the certificate of the service with TLS. The process trusts it.
var authority = certtest.New()

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "pubsub")
	if err != nil {
		panic(err)
	}
	if err := errors.Join(os.Setenv("SSL_CERT_FILE", certtest.Write(folder, authority.Certificate)), os.Unsetenv(pubsub.EnvEmulator)); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// service is Google's fake, which also refuses what the service refuses by its documentation, and which can fail.
type service struct {
	iampb.UnimplementedIAMPolicyServer

	fake    *pstest.Server
	address string

	mu       sync.Mutex
	requests int // that the service has got, with those that failed
	answer   func(context.Context, *pubsubpb.PublishRequest) error
	rights   []string // of who asks; nil: the service does not know, like an emulator
}

// start starts a service with a topic, until the test ends.
func start(t testing.TB, options ...grpc.ServerOption) *service {
	t.Helper()
	s := &service{fake: pstest.NewServer()}
	t.Cleanup(func() { _ = s.fake.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	server := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(32<<20), grpc.UnaryInterceptor(s.intercept))...)
	pubsubpb.RegisterPublisherServer(server, &s.fake.GServer)
	iampb.RegisterIAMPolicyServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	s.create(t, "orders")
	return s
}

func (s *service) create(t testing.TB, topics ...string) {
	t.Helper()
	for _, name := range topics {
		_, err := s.fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/" + project + "/topics/" + name})
		require.NoError(t, err)
	}
}

// answers makes the service answer requests; nil means as usual.
func (s *service) answers(answer func(context.Context, *pubsubpb.PublishRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *service) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if publish, ok := request.(*pubsubpb.PublishRequest); ok {
		s.mu.Lock()
		s.requests++
		answer := s.answer
		s.mu.Unlock()
		if err := check(publish); err != nil {
			return nil, err
		}
		if answer != nil {
			if err := answer(ctx, publish); err != nil {
				return nil, err
			}
		}
	}
	return handle(ctx, request)
}

// check returns the error of the service for a request that its documentation does not allow.
func check(r *pubsubpb.PublishRequest) error {
	wrong := len(r.Messages) == 0 || len(r.Messages) > 1000 || proto.Size(r) > 10_000_000
	for _, m := range r.Messages {
		wrong = wrong || m.OrderingKey != r.Messages[0].OrderingKey || len(m.OrderingKey) > 1024 || len(m.Attributes) > 100
		for name, text := range m.Attributes {
			wrong = wrong || len(name) > 256 || strings.HasPrefix(name, "goog") || len(text) > 1024
		}
	}
	if wrong {
		return status.Error(codes.InvalidArgument, "You have passed an invalid argument to the service")
	}
	return nil
}

func (s *service) TestIamPermissions(_ context.Context, r *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rights == nil {
		return nil, status.Error(codes.Unimplemented, "unknown service")
	}
	granted := slices.DeleteFunc(slices.Clone(r.Permissions), func(p string) bool { return !slices.Contains(s.rights, p) })
	return &iampb.TestIamPermissionsResponse{Permissions: granted}, nil
}

// received returns the notifications of a topic: those of a key in order, and the keys by their first notification,
// since subscribers get no other order.
func (s *service) received() (all []notification.Envelope) {
	byKey := map[string][]notification.Envelope{}
	for _, m := range s.fake.Messages() {
		e := envelopeOf(m.Data, m.Attributes)
		byKey[m.OrderingKey] = append(byKey[m.OrderingKey], e)
	}
	for key, group := range byKey {
		if key == "" {
			slices.SortStableFunc(group, byID)
		}
	}
	var groups [][]notification.Envelope
	for _, group := range byKey {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b []notification.Envelope) int { return byID(a[0], b[0]) })
	return slices.Concat(groups...)
}

func byID(a, b notification.Envelope) int { return strings.Compare(a.ID, b.ID) }

func envelopeOf(data []byte, attributes map[string]string) notification.Envelope {
	e := notification.Envelope{ID: attributes["id"], Type: attributes["type"], Key: attributes["key"], Payload: data}
	_, _ = fmt.Sscan(attributes["version"], &e.Version)
	e.OccurredOn, _ = time.Parse(time.RFC3339Nano, attributes["occurred-on"])
	return e
}

// settings are those of a sink for the service, in YAML.
func (s *service) settings(more string) string {
	return "project: " + project + "\nendpoint: http://" + s.address + "\ntimeout: 1m\n" + more
}

// sink makes a sink for the topic orders, and closes it when the test ends.
func (s *service) sink(t testing.TB, more string) *pubsub.Sink {
	return newSink(t, sinks.Instance{}, s.settings("topic: orders\n"+more))
}

func newSink(t testing.TB, in sinks.Instance, settings string) *pubsub.Sink {
	t.Helper()
	sink, err := build(t, in, settings)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) })
	return sink
}

func build(t testing.TB, in sinks.Instance, settings string) (*pubsub.Sink, error) {
	t.Helper()
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(settings), &document), settings)
	sink, err := pubsub.Kind().Build(in, document.Content[0].Decode)
	if err != nil {
		return nil, err
	}
	return sink.(*pubsub.Sink), nil
}

// delivery returns a delivery with a key.
func delivery(n int, key string) *notification.Delivery {
	d := sinktest.NewDelivery(n)
	d.Key = key
	return d
}

// withTLS is a service with TLS that refuses requests whose token isn't accepted.
func withTLS(t testing.TB, accepts func(token string) bool) *service {
	certificate := authority.Issue("127.0.0.1")
	s := start(t, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	s.answers(func(ctx context.Context, _ *pubsubpb.PublishRequest) error {
		sent, _ := metadata.FromIncomingContext(ctx)
		if token := sent.Get("authorization"); len(token) != 1 || !accepts(strings.TrimPrefix(token[0], "Bearer ")) {
			return status.Error(codes.Unauthenticated, "Request had invalid authentication credentials.")
		}
		return nil
	})
	return s
}
