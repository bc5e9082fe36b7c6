package sinks

import (
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// Private says what a sink gets of the private values of a notification; see package privacy.
type Private string

// What a sink gets of private values.
const (
	// PrivateReveal decrypts them for the call.
	PrivateReveal Private = "reveal"
	// PrivateKeep leaves them encrypted, so that they can be erased where the sink stores them.
	PrivateKeep Private = "keep"
	// PrivateDrop removes them from the payload.
	PrivateDrop Private = "drop"
	// PrivateMask replaces them by "***".
	PrivateMask Private = "mask"
)

// Revealer is a sink that uses private values itself, such as one that runs the application's own code. It gets them
// decrypted unless its setting private says otherwise. Sinks that are not Revealers get them encrypted.
type Revealer interface {
	// RevealsPrivate returns true.
	RevealsPrivate() bool
}

// Hidden are private texts that a destination may have repeated. It is safe for concurrent use.
type Hidden struct{ texts redact.Credentials }

// Hide makes a Hidden of the texts with at least four bytes, and ignores shorter ones, which are parts of ordinary words.
func Hide(texts []string) Hidden { return Hidden{redact.Credentials{}.WithShort(texts...)} }

// Text returns a text with "***" in place of the hidden ones, also where they are escaped or encoded.
func (h Hidden) Text(text string) string { return h.texts.Text(text) }

// Error returns err, with its class, without the hidden texts. It is nil for nil.
func (h Hidden) Error(err error) error {
	if err == nil {
		return nil
	}
	if answer := AnswerOf(err); answer != "" {
		return &answered{h.Text(Brief(err)), h.Text(answer), err}
	}
	return h.texts.Error(err)
}
