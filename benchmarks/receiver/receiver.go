// Package receiver has servers inside the process to which sinks deliver: a Kafka broker, temporary
// topics of any Kafka, an HTTP endpoint and a mail server. They report what they have accepted, and keep
// nothing. A [Tally] finds what is lost, repeated or out of order.
package receiver
