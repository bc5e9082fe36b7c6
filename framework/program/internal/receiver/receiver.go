// Package receiver has servers inside the process for sinks to deliver to: a Kafka
// broker and topics of the program's own, an HTTP endpoint and a mail server. They
// tell the ids that they took and keep nothing else.
package receiver
