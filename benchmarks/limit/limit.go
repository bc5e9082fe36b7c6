// Package limit has contenders that show the limits of an outbox: they read rows without delivering
// them, or deliver made-up orders without reading any.
package limit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/wneessen/go-mail"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/workload"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

const page = 5000

// Keyset reads pages of Waybill's outbox on one connection, and settles nothing.
func Keyset() peer.Relay {
	return peer.Relay{
		Name:          "Limit: pages of a keyset SELECT",
		Configuration: fmt.Sprintf(`SELECT "offset", id, key, payload FROM outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT %d, prepared, one connection through lib/pq, nothing delivered or settled`, page),
		Bare:          true,
		Outbox:        peer.Waybill{},
		Deliver:       deliverKeyset,
	}
}

func deliverKeyset(ctx context.Context, dsn string, to receiver.Destination) error {
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	query, err := db.PrepareContext(ctx, fmt.Sprintf(`SELECT "offset", id, key, payload FROM outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT %d`, page))
	if err != nil {
		return err
	}
	defer query.Close()
	for last, more := int64(0), true; more; {
		if last, more, err = readPage(ctx, query, last, to); err != nil {
			return err
		}
	}
	return nil
}

func readPage(ctx context.Context, query *sql.Stmt, after int64, to receiver.Destination) (last int64, more bool, err error) {
	rows, err := query.QueryContext(ctx, after)
	if err != nil {
		return after, false, err
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var id, key, payload sql.RawBytes
		if err := rows.Scan(&last, &id, &key, &payload); err != nil {
			return last, false, err
		}
		to.Take(payload)
	}
	return last, last > after, rows.Err()
}

// SyncProducer sends records in inFlight goroutines, one record at a time in each.
func SyncProducer(inFlight int) peer.Relay {
	return peer.Relay{
		Name:          fmt.Sprintf("Limit: sarama SyncProducer, %d in flight", inFlight),
		Configuration: "SendMessage in that many goroutines; acks=all, five requests in flight",
		Bare:          true,
		Outbox:        peer.Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			producer, err := sarama.NewSyncProducer(to.Brokers, peer.SaramaConfig())
			if err != nil {
				return err
			}
			return errors.Join(each(ctx, to.Orders, inFlight, func(number int) error {
				_, _, err := producer.SendMessage(record(number, to.Topic))
				return err
			}), producer.Close())
		},
	}
}

// AsyncProducer sends records without waiting for their acknowledgements.
func AsyncProducer() peer.Relay {
	return peer.Relay{
		Name:          "Limit: sarama AsyncProducer",
		Configuration: "fed as fast as it takes records; acks=all, five requests in flight",
		Bare:          true,
		Outbox:        peer.Business{},
		Deliver:       deliverAsync,
	}
}

func deliverAsync(ctx context.Context, _ string, to receiver.Destination) error {
	producer, err := sarama.NewAsyncProducer(to.Brokers, peer.SaramaConfig())
	if err != nil {
		return err
	}
	var (
		answers sync.WaitGroup
		failed  error
	)
	answers.Go(func() {
		for range producer.Successes() {
		}
	})
	answers.Go(func() {
		for e := range producer.Errors() {
			failed = e
		}
	})
	for number := 0; number < to.Orders && ctx.Err() == nil; number++ {
		producer.Input() <- record(number, to.Topic)
	}
	producer.AsyncClose()
	answers.Wait()
	return failed
}

// FranzGo sends records without waiting for their acknowledgements.
func FranzGo() peer.Relay {
	return peer.Relay{
		Name:          "Limit: franz-go",
		Configuration: "fed as fast as it takes records; idempotent, acks=all, no linger: its defaults",
		Bare:          true,
		Outbox:        peer.Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			client, err := kgo.NewClient(kgo.SeedBrokers(to.Brokers...), kgo.DefaultProduceTopic(to.Topic), kgo.ProducerLinger(0))
			if err != nil {
				return err
			}
			defer client.Close()
			var failed kgo.FirstErrPromise
			for number := 0; number < to.Orders && ctx.Err() == nil; number++ {
				o := workload.New(number)
				client.Produce(context.WithoutCancel(ctx), &kgo.Record{Key: []byte(workload.Key(number)), Value: o.JSON()}, failed.Promise())
			}
			return failed.Err()
		},
	}
}

func record(number int, topic string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(workload.Key(number)), Value: sarama.ByteEncoder(workload.New(number).JSON()),
	}
}

// HTTP is a loop around net/http's client.
func HTTP() peer.Relay {
	return peer.Relay{
		Name:          "Limit: a bare net/http loop",
		Configuration: "client.Do in as many goroutines as may be in flight, with as many kept-alive connections",
		Bare:          true,
		Outbox:        peer.Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) error {
			client := peer.Client(to.InFlight)
			defer client.CloseIdleConnections()
			return each(ctx, to.Orders, to.InFlight, func(number int) error {
				return peer.Post(context.WithoutCancel(ctx), client, to.URL, workload.New(number).JSON())
			})
		},
	}
}

// Mail sends mails in a loop around go-mail's client, over that many connections.
func Mail(connections int) peer.Relay {
	return peer.Relay{
		Name:          fmt.Sprintf("Limit: go-mail in a loop, %s", plural(connections)),
		Configuration: "a message composed and sent by wneessen/go-mail in as many goroutines, each with a permanent connection; without the NOOP before each mail",
		Bare:          true,
		Outbox:        peer.Business{},
		Deliver: func(ctx context.Context, _ string, to receiver.Destination) (err error) {
			clients := make(chan *mail.Client, connections)
			defer func() {
				for len(clients) > 0 {
					err = errors.Join(err, (<-clients).Close())
				}
			}()
			for range connections {
				client, err := dialMail(to.SMTP)
				if err != nil {
					return err
				}
				clients <- client
			}
			return each(ctx, to.Orders, connections, func(number int) error {
				client := <-clients
				defer func() { clients <- client }()
				return sendMail(client, workload.New(number))
			})
		},
	}
}

func plural(connections int) string {
	if connections == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", connections)
}

func dialMail(address string) (*mail.Client, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	client, err := mail.NewClient(host, mail.WithPort(number), mail.WithTLSPolicy(mail.NoTLS), mail.WithoutNoop())
	if err != nil {
		return nil, err
	}
	return client, client.DialWithContext(context.Background()) // the client has a timeout
}

// sendMail sends the mail that Waybill's templates render.
func sendMail(client *mail.Client, o workload.Order) error {
	var text, html strings.Builder
	fmt.Fprintf(&text, "Hello %s,\n\nwe have your order %s of %s:\n\n", o.Customer, o.ID, o.PlacedOn)
	fmt.Fprintf(&html, "<p>Hello %s,</p>\n<p>we have your order <b>%s</b> of %s:</p>\n<ul>", o.Customer, o.ID, o.PlacedOn)
	for _, l := range o.Lines {
		fmt.Fprintf(&text, "%d x %s\n", l.Count, l.Article)
		fmt.Fprintf(&html, "<li>%d x %s</li>", l.Count, l.Article)
	}
	fmt.Fprintf(&text, "\n%s\n", o.Note)
	fmt.Fprintf(&html, "</ul>\n<p>%s</p>\n", o.Note)
	m := mail.NewMsg()
	if err := errors.Join(m.From(peer.MailFrom), m.To(receiver.MailAddress(o.ID))); err != nil {
		return err
	}
	m.Subject("Your order " + o.ID)
	m.SetBodyString(mail.TypeTextPlain, text.String())
	m.AddAlternativeString(mail.TypeTextHTML, html.String())
	return client.Send(m)
}

// each calls do with the numbers from 0 to n-1, in parallel goroutines, until ctx is done.
func each(ctx context.Context, n, parallel int, do func(number int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for ctx.Err() == nil {
				number := int(next.Add(1)) - 1
				if number >= n {
					return nil
				}
				if err := do(number); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
