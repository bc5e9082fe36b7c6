package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxSubject is the longest subject in bytes. A server closes the connection if the line with the
// subject and other fields is longer than 4096 bytes.
const maxSubject = 1000

// ErrSubject means that the subject is not legal for a message.
var ErrSubject = errors.New("no subject of a message")

// checkSubject returns an error for a subject that a server would misread or ignore, or after which
// it would close the connection.
func checkSubject(subject string) error {
	tokens := strings.Split(subject, ".")
	problem := ""
	switch {
	case len(subject) > maxSubject:
		problem = fmt.Sprintf("it has %d bytes, the limit is %d", len(subject), maxSubject)
	case strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		problem = "it has a blank or a control character"
	case slices.Contains(tokens, ""):
		problem = "a part between its dots is empty"
	case slices.Contains(tokens, "*") || slices.Contains(tokens, ">"):
		problem = "it has a wildcard"
	case tokens[0] == "$JS" || tokens[0] == "$SYS":
		problem = "it is reserved for the server"
	default:
		return nil
	}
	return fmt.Errorf("%.80q is %w: %s", subject, ErrSubject, problem)
}
