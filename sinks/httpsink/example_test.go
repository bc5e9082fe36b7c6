package httpsink_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// A partner receives signed notifications at a URL and verifies them. Normally the engine calls
// Deliver.
func Example() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := webhook.Envelope(r, secret)
		if err != nil {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Println(r.Method, r.URL.Path, e.Type, e.ID, string(e.Payload))
		w.WriteHeader(http.StatusAccepted)
	}))
	defer partner.Close()

	sink, err := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{URL: partner.URL + "/hooks", Secret: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())

	receipt, err := sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         "0198c0de-0000-7000-8000-000000000001",
			Type:       "order.placed",
			Version:    1,
			OccurredOn: time.Now(),
			Payload:    []byte(`{"order":42}`),
		},
		Sink:    "partner",
		Attempt: 1,
	})
	fmt.Println("receipt:", receipt, err)
	// Output:
	// POST /hooks order.placed 0198c0de-0000-7000-8000-000000000001 {"order":42}
	// receipt: http 202 <nil>
}

// Another program receives the notifications with its own functions and types.
func ExampleReceive() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	type OrderPlaced struct {
		Order int `json:"order"`
	}
	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
		fmt.Println(err)
		return
	}
	handler, err := webhook.Receive(webhook.Receiver{Secrets: []string{secret}}, function.Mux(types,
		function.On(func(_ context.Context, o OrderPlaced) error {
			fmt.Println("reserve the goods of order", o.Order)
			return nil
		}),
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	warehouse := httptest.NewServer(handler)
	defer warehouse.Close()

	sink, err := httpsink.New(sinks.Instance{Name: "warehouse"}, httpsink.Config{URL: warehouse.URL, Secret: secret})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())
	for _, payload := range []string{`{"order":42}`, `"no order"`} {
		_, err = sink.Deliver(context.Background(), &notification.Delivery{
			Envelope: &notification.Envelope{ID: "1", Type: "order.placed", Version: 1, OccurredOn: time.Now(), Payload: []byte(payload)},
		})
		class, _ := sinks.Classify(err)
		fmt.Println("failed:", err != nil, "for good:", class == sinks.ClassPermanent)
	}
	// Output:
	// reserve the goods of order 42
	// failed: false for good: false
	// failed: true for good: true
}

// Each customer has its own URL and secrets, which the program checks when the customer enters
// them, and a client posts to all of them.
func ExampleClient() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verified, err := webhook.Receiver{Secrets: []string{secret}}.Verify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("webhook-id"), r.Header.Get("X-Shop"))
		w.Header().Set("X-Request-Id", "7f3a")
		_, _ = io.WriteString(w, "thank you")
	}))
	check(err)
	customer := httptest.NewServer(verified)
	defer customer.Close()

	// The customer of this example is in a private network, and has no certificate.
	c := httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Allow: []string{"127.0.0.0/8"}}, Proxy: "none"}
	fmt.Println(c.CheckURL("https://10.0.0.7/hooks"))
	check(c.CheckURL(customer.URL))

	client, err := httpsink.NewClient(sinks.Instance{Name: "customers"}, c)
	check(err)
	defer client.Close()
	keys, err := httpsink.ParseSecrets([]string{secret})
	check(err)
	exchange, receipt, err := client.Post(context.Background(), httpsink.Post{
		URL:    customer.URL + "/hooks",
		Header: map[string]string{"X-Shop": "1"},
		ID:     "msg_1",
		Body:   []byte(`{"order":42}`),
		Keys:   keys,
	})
	fmt.Println(exchange.Status, string(exchange.Body), receipt, err)
	// Output:
	// 10.0.0.7 is a private network, which the guard refuses; guard.allow makes exceptions
	// msg_1 1
	// 200 thank you http 200 7f3a <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Build returns all mistakes of a configuration at once.
func ExampleKind() {
	_, err := httpsink.Kind().Build(sinks.Instance{Name: "partner"}, func(config any) error {
		return yaml.Unmarshal([]byte("{url: partner.example/hooks, method: GET}"), config)
	})
	fmt.Println(err)
	// Output:
	// method: "GET" is not offered; use POST or PUT
	// url: scheme "" is not offered; start it with https:// or http://
}

// One request carries many notifications, as a JSON array of CloudEvents. Normally the engine makes
// the batches, up to the configured size.
func ExampleSink_DeliverBatch() {
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Content-Type"))
		fmt.Println(string(body))
		w.Header().Set("X-Request-Id", "7f3a")
	}))
	defer partner.Close()

	sink, err := httpsink.New(sinks.Instance{Name: "partner"}, httpsink.Config{
		URL:    partner.URL,
		Format: httpsink.FormatBatch,
		Source: "/shop",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())

	fmt.Println("at most", sink.BatchLimits().Size)
	for _, result := range sink.DeliverBatch(context.Background(), []*notification.Delivery{
		{Envelope: &notification.Envelope{ID: "1", Type: "order.placed", Version: 1, Payload: []byte(`{"order":42}`)}},
		{Envelope: &notification.Envelope{ID: "2", Type: "order.paid", Version: 1}},
	}) {
		fmt.Println("receipt:", result.Receipt, result.Err)
	}
	// Output:
	// at most 100
	// application/cloudevents-batch+json
	// [{"specversion":"1.0","id":"1","source":"/shop","type":"order.placed","payloadversion":1,"datacontenttype":"application/json","data":{"order":42}},{"specversion":"1.0","id":"2","source":"/shop","type":"order.paid","payloadversion":1,"datacontenttype":"application/json"}]
	// receipt: http 200 7f3a <nil>
	// receipt: http 200 7f3a <nil>
}

// If data names the host of a request, the guard refuses private networks.
func ExampleConfig_template() {
	sink, err := httpsink.New(sinks.Instance{Name: "tenants"}, httpsink.Config{
		URL: `http://{{.Metadata.host}}/hooks/{{.Type}}?order={{.Key}}`,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close(context.Background())

	_, err = sink.Deliver(context.Background(), &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:       "1",
			Type:     "order.placed",
			Version:  1,
			Metadata: notification.Metadata{"host": "169.254.169.254"},
		},
		Sink:    "tenants",
		Attempt: 1,
	})
	class, _ := sinks.Classify(err)
	fmt.Println(class)
	// Output:
	// invalid
}
