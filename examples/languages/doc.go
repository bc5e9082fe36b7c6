// Package languages has one example in each of several languages: a program that stores an
// order and its notification in one transaction, and a consumer that handles each notification
// once. Its test runs those of which the language is installed, against a real PostgreSQL.
package languages
