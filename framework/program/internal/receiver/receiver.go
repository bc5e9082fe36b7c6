// Package receiver has servers inside the process to which sinks deliver: a Kafka broker with temporary
// topics, an HTTP endpoint and a mail server. They report the ids that they have accepted, and keep
// nothing.
package receiver
