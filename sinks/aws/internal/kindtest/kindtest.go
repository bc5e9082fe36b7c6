// Package kindtest is the conformance suite of this module's kinds. Their servers are behind a proxy that spoils answers.
package kindtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// patience is the setting timeout of sinks, and impatience that of a sink whose server does not answer.
const (
	patience   = "30s"
	impatience = "300ms"
)

// Subject is the kind under test.
type Subject struct {
	Kind   sinks.Kind
	Server string // its URL
	// New makes a destination, such as a queue. It returns the settings of a sink for it, without those of package
	// access, and a function that returns what the destination has got since then, oldest first.
	New func(t *testing.T) (settings string, received func(t *testing.T) []notification.Envelope)
	// Refused makes the n-th delivery, which the sink or the service never accepts.
	Refused func(n int) *notification.Delivery
	// Partly is a fault that lets the service have some entries of a request, and answers that it failed for the others.
	Partly awstest.Fault
	// Ordered reports whether the destination keeps the order of a key.
	Ordered bool
}

// Run tests the subject.
func Run(t *testing.T, s Subject) {
	t.Run("the sink passes sinktest", s.testContract)
	t.Run("an outage has no victims", s.testOutages)
	t.Run("everything arrives through failures", s.testStorm)
	t.Run("the program's dialer opens the connections", s.testDial)
	t.Run("without credentials it is unavailable", s.testCredentials)
}

// Build makes a sink from settings in YAML, for a server at a URL.
func Build(t *testing.T, kind sinks.Kind, in sinks.Instance, endpoint, timeout, settings string) sinks.Sink {
	t.Helper()
	text := fmt.Sprintf("region: %s\nendpoint: %s\ntimeout: %s\n%s", awstest.Region, endpoint, timeout, settings)
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document), text)
	sink, err := kind.Build(in, document.Content[0].Decode)
	require.NoError(t, err, text)
	return sink
}

// build makes a sink, and closes it when the test ends.
func build(t *testing.T, kind sinks.Kind, in sinks.Instance, endpoint, timeout, settings string) sinks.Batcher {
	t.Helper()
	sink := Build(t, kind, in, endpoint, timeout, settings)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink.(sinks.Batcher)
}

func (s Subject) testContract(t *testing.T) {
	var received func(*testing.T) []notification.Envelope
	fresh := func(t *testing.T, endpoint, timeout string) sinks.Sink {
		settings, its := s.New(t)
		received = its
		return Build(t, s.Kind, sinks.Instance{Name: "contract"}, endpoint, timeout, settings)
	}
	sinktest.Run(t, sinktest.Subject{
		New:      func(t *testing.T) sinks.Sink { return fresh(t, s.Server, patience) },
		Received: func(t *testing.T) []notification.Envelope { return received(t) },
		Refused:  s.Refused,
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return fresh(t, "http://"+servertest.Unused, patience) },
		},
		Stuck:    func(t *testing.T) sinks.Sink { return fresh(t, "http://"+servertest.Silent(t), patience) },
		Receipts: true,
	})
}

// outages are what happens to a service, by the class that a delivery has.
func outages(server string) map[sinks.Class][]awstest.Fault {
	page := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html>Bad Gateway</html>"))
		return true
	}
	return map[sinks.Class][]awstest.Fault{
		sinks.ClassThrottled: {
			awstest.Refuse(http.StatusBadRequest, "ThrottlingException"),
			awstest.Refuse(http.StatusBadRequest, "Throttling"),
			awstest.Refuse(http.StatusBadRequest, "KMS.ThrottlingException"),
		},
		sinks.ClassUnavailable: {
			awstest.Refuse(http.StatusForbidden, "AccessDeniedException"),
			awstest.Refuse(http.StatusForbidden, "AccessDenied"),
			awstest.Refuse(http.StatusForbidden, "ExpiredTokenException"),
			awstest.Refuse(http.StatusForbidden, "UnrecognizedClientException"),
			awstest.Refuse(http.StatusForbidden, "InvalidClientTokenId"),
			awstest.Refuse(http.StatusBadRequest, "KMS.DisabledException"),
			awstest.Refuse(http.StatusBadRequest, "OptInRequired"),
			awstest.Refuse(http.StatusInternalServerError, "InternalFailure"),
			awstest.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable"),
			awstest.Refuse(http.StatusInternalServerError, "SomethingNew"),
			page,
			awstest.Cut(server, false),
			awstest.Cut(server, true),
			awstest.Hang,
		},
	}
}

// testOutages delivers during each outage, and after it.
func (s Subject) testOutages(t *testing.T) {
	proxy := awstest.NewProxy(t, s.Server)
	settings, _ := s.New(t)
	n := 0
	for class, faults := range outages(s.Server) {
		for i, fault := range faults {
			n++
			timeout := patience
			if class == sinks.ClassUnavailable && i == len(faults)-1 { // awstest.Hang
				timeout = impatience
			}
			sink := build(t, s.Kind, sinks.Instance{}, proxy.URL, patience, settings)
			d := sinktest.NewDelivery(n)
			_, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)
			proxy.Break(fault)
			other := build(t, s.Kind, sinks.Instance{}, proxy.URL, timeout, settings)
			_, err = other.Deliver(t.Context(), d)
			require.Equal(t, class, sinktest.Class(err), "%v", err)
			require.Error(t, other.(sinks.HealthChecker).CheckHealth(t.Context()))
			proxy.Break(nil)
			_, err = sink.Deliver(t.Context(), d)
			require.NoError(t, err, "after the outage")
			require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
		}
	}
}

// testStorm delivers many notifications of a few keys in batches as the engine does, while half of the
// requests fail.
func (s Subject) testStorm(t *testing.T) {
	const keys, each = 7, 12
	proxy := awstest.NewProxy(t, s.Server)
	settings, received := s.New(t)
	sink := build(t, s.Kind, sinks.Instance{}, proxy.URL, "2s", settings)
	faults := []awstest.Fault{s.Partly, s.Partly, s.Partly, s.Partly}
	for _, some := range outages(s.Server) {
		faults = append(faults, some[:len(some)-1]...) // without those that take time
	}
	proxy.Break(func(w http.ResponseWriter, r *http.Request) bool {
		return rand.N(2) == 0 && faults[rand.N(len(faults))](w, r)
	})
	var all [keys][each]*notification.Delivery
	for key := range keys {
		for n := range each {
			all[key][n] = sinktest.NewDelivery(key*each + n)
			all[key][n].Key = strconv.Itoa(key)
		}
	}
	next := make([]int, keys) // of each key
	for left := true; left; {
		var batch []*notification.Delivery
		for key := range keys {
			if next[key] < each {
				batch = append(batch, all[key][next[key]])
			}
		}
		left = len(batch) > 0
		for i, result := range sink.DeliverBatch(t.Context(), batch) {
			if result.Err == nil {
				key, err := strconv.Atoi(batch[i].Key)
				require.NoError(t, err)
				next[key]++
				continue
			}
			class, until := sinks.Classify(result.Err)
			require.Contains(t, []sinks.Class{sinks.ClassUnavailable, sinks.ClassThrottled}, class, "%v", result.Err)
			require.Less(t, time.Until(until), time.Minute)
		}
	}
	got := make(map[string][]string)
	seen := make(map[string]bool)
	for _, e := range received(t) {
		if !seen[e.ID] {
			seen[e.ID] = true
			got[e.Key] = append(got[e.Key], e.ID)
		}
	}
	for key := range keys {
		var want []string
		for _, d := range all[key] {
			want = append(want, d.ID)
		}
		if s.Ordered {
			require.Equal(t, want, got[strconv.Itoa(key)])
		} else {
			require.ElementsMatch(t, want, got[strconv.Itoa(key)])
		}
	}
}

func (s Subject) testDial(t *testing.T) {
	to, err := url.Parse(s.Server)
	require.NoError(t, err)
	var dialled atomic.Int64
	settings, _ := s.New(t)
	sink := build(t, s.Kind, sinks.Instance{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, to.Host)
	}}, "http://192.0.2.1:1", patience, settings)
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.NotZero(t, dialled.Load())
}

func (s Subject) testCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	settings, _ := s.New(t)
	sink := build(t, s.Kind, sinks.Instance{}, s.Server, patience, settings)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "no credentials or region for AWS")

	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err, "they are found when they are there")
}

// Drain measures how many deliveries a sink makes in batches of a size from 8 goroutines.
func Drain(b *testing.B, sink sinks.Batcher, size int) {
	b.Helper()
	b.ReportAllocs()
	var n atomic.Int64
	b.SetParallelism(8 / min(8, runtime.GOMAXPROCS(0)))
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			batch := make([]*notification.Delivery, size)
			for i := range batch {
				batch[i] = sinktest.NewDelivery(int(n.Add(1)))
			}
			for _, result := range sink.DeliverBatch(b.Context(), batch) {
				if result.Err != nil {
					b.Error(result.Err)
				}
			}
		}
	})
	b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "deliveries/s")
}
