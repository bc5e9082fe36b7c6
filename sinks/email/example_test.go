package email_test

import (
	"context"
	"embed"
	"fmt"
	"log"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

//go:embed testdata/mail
var templates embed.FS

// A sink with embedded templates, and a mail server in the same process.
func Example() {
	server, err := smtptest.Start(smtptest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{
		SMTP:      server.URL(),
		From:      "Shop <shop@example.com>",
		FS:        templates,
		Templates: "testdata/mail",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer func() { _ = sink.Close(ctx) }()

	receipt, err := sink.Deliver(ctx, &notification.Delivery{Envelope: &notification.Envelope{
		ID:      "0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11",
		Type:    "order.placed",
		Payload: []byte(`{"order": 10023, "customer": {"name": "Jané Doe", "email": "jane@example.org"}}`),
	}})
	if err != nil {
		log.Fatal(err)
	}
	mail := server.Messages()[0]
	text, err := mail.Text()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt)
	fmt.Println(mail.To, mail.Subject())
	fmt.Println(text)
	// Output:
	// smtp 250 OK: queued as 1
	// [jane@example.org] Your order 10023
	// Hello Jané Doe,
	//
	// we have your order 10023. Thank you!
}

// Preview shows a mail without sending it. It needs no mail server and no password.
func ExampleComposer_Preview() {
	composer, err := email.NewComposer(sinks.Instance{Name: "mail"}, email.Config{
		From: "Shop <shop@example.com>", FS: templates, Templates: "testdata/mail",
	})
	if err != nil {
		log.Fatal(err)
	}
	preview, err := composer.Preview(&notification.Envelope{
		ID:      "0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11",
		Type:    "order.placed",
		Payload: []byte(`{"order": 10023, "customer": {"name": "Jané Doe", "email": "jane@example.org"}}`),
	}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(composer.Types())
	fmt.Println(preview.Recipients)
	for _, field := range preview.Header {
		if field.Name == "To" || field.Name == "Subject" {
			fmt.Printf("%s: %s\n", field.Name, field.Value)
		}
	}
	fmt.Print(preview.Text)
	// Output:
	// [order.placed]
	// [jane@example.org]
	// To: Jané Doe <jane@example.org>
	// Subject: Your order 10023
	// Hello Jané Doe,
	//
	// we have your order 10023. Thank you!
}
