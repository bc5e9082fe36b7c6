package main

import (
	"time"

	"github.com/nats-io/nats.go"
)

const (
	stream  = "SHOP"
	subject = "shop.>"
)

// duplicates is how long the stream remembers ids. It should be longer than a
// forwarder is ever away between a delivery and the checkpoint that records it; the
// ids are in the server's memory.
const duplicates = 10 * time.Minute

// declare makes the stream. One that is there with these settings is no error. The sink waits
// until it is there.
func declare(connection *nats.Conn) error {
	js, err := connection.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name:       stream,
		Subjects:   []string{subject},
		Storage:    nats.FileStorage,
		Duplicates: duplicates,
		Discard:    nats.DiscardNew, // a full stream refuses new messages and keeps old ones
		Replicas:   1,               // 3 in a cluster
	})
	return err
}
