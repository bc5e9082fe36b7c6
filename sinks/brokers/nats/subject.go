package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxSubject is far below the 4096 bytes that a server has for a line with the subject and
// more. It ends the connection over a longer one.
const maxSubject = 1000

// ErrSubject: no message can have the subject.
var ErrSubject = errors.New("no subject of a message")

// checkSubject finds what a server would misread, ignore, or end the connection over.
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
		problem = "it is one of the server's own"
	default:
		return nil
	}
	return fmt.Errorf("%.80q is %w: %s", subject, ErrSubject, problem)
}
