// Package languages has the same example in several languages: a program that stores an order and
// its notification in one transaction, and a consumer that handles each notification once. The test
// runs the examples of all installed languages on a real PostgreSQL. Other programs receive webhooks,
// and one in Python is a sink.
package languages
