package sqs_test

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/aws/awstest"
	"github.com/waybill-go/waybill/sinks/aws/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/aws/sqs"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { os.Exit(awstest.Main(m)) }

func TestConformance(t *testing.T) {
	for name, server := range map[string]func(testing.TB) string{"moto": awstest.Moto, "ElasticMQ": awstest.ElasticMQ} {
		t.Run(name, func(t *testing.T) {
			url := server(t)
			t.Run("standard", func(t *testing.T) { kindtest.Run(t, subject(url, "", "")) })
			t.Run("FIFO", func(t *testing.T) { kindtest.Run(t, subject(url, ".fifo", "")) })
			t.Run("whole notifications", func(t *testing.T) { kindtest.Run(t, subject(url, ".fifo", "format: envelope")) })
		})
	}
}

func subject(server, ending, settings string) kindtest.Subject {
	return kindtest.Subject{
		Kind:   sqs.Kind(),
		Server: server,
		New: func(t *testing.T) (string, func(*testing.T) []notification.Envelope) {
			queue := newQueue(t, server, ending)
			received := func(t *testing.T) (all []notification.Envelope) {
				for _, m := range queue.Take(t) {
					if settings == "" {
						all = append(all, awstest.Envelope(t, m))
					} else {
						all = append(all, awstest.Whole(t, *m.Body))
					}
				}
				return all
			}
			return "queue: " + queue.Name + "\n" + settings, received
		},
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
			return d
		},
		Ordered: ending != "",
	}
}

var made atomic.Int64

func newQueue(t *testing.T, server, ending string) *awstest.Queue {
	t.Helper()
	attributes := map[string]string{}
	if ending != "" {
		attributes["FifoQueue"] = "true"
	}
	return awstest.NewQueue(t, server, "queue-"+strconv.FormatInt(made.Add(1), 10)+ending, attributes)
}
