package connection

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// Token is a token for OAUTHBEARER.
type Token struct {
	Text string
	// Extensions are further values that some brokers require, such as Confluent Cloud.
	Extensions map[string]string
}

// TokenProvider provides tokens. Token is called for each connection, and each time that a
// broker asks for the credentials again. It must be safe for concurrent use, and should return
// within a tenth of the sink's timeout.
type TokenProvider interface {
	Token(ctx context.Context) (Token, error)
}

// fileToken is the path of a file with a token, which another program keeps up to date.
type fileToken string

// Token reads the file.
func (path fileToken) Token(context.Context) (Token, error) {
	text, err := os.ReadFile(string(path))
	if err != nil {
		return Token{}, fmt.Errorf("sasl.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return Token{}, fmt.Errorf("sasl.token_file: %s is empty", string(path))
	case strings.ContainsFunc(token, notInToken):
		return Token{}, fmt.Errorf("sasl.token_file: %s does not contain exactly one token", string(path))
	}
	return Token{Text: token}, nil
}

// notInToken reports whether a token cannot contain r. Tokens are printable ASCII (RFC 6749, appendix
// A.12); a space would end one, and a control character could begin another field (RFC 7628, section
// 3.1).
func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// tokens gets tokens, and remembers the last one, so that errors can be redacted.
type tokens struct {
	provider TokenProvider
	last     atomic.Value // string
}

func (t *tokens) get(ctx context.Context) (Token, error) {
	token, err := t.provider.Token(ctx)
	if err == nil {
		t.last.Store(token.Text)
	}
	return token, err
}

// newest returns the last token, or "" before the first one.
func (t *tokens) newest() string {
	text, _ := t.last.Load().(string)
	return text
}
