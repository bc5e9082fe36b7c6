package kafka

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// Token is what OAUTHBEARER lets a client in with.
type Token struct {
	Text       string
	Extensions map[string]string // what some brokers want beside it, such as Confluent Cloud
}

// TokenProvider gives the token for each connection, and for each time that a broker asks
// again. It is called in parallel, and should return within a tenth of the timeout.
type TokenProvider interface {
	Token(ctx context.Context) (Token, error)
}

// fileToken is the path of a file that another program keeps current.
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
		return Token{}, fmt.Errorf("sasl.token_file: %s holds something else than one token", string(path))
	}
	return Token{Text: token}, nil
}

// notInToken follows RFC 6750, section 2.1, for what would end a token, or begin
// something else (RFC 7628, section 3.1).
func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// rememberedToken knows what was given last, so that no error repeats it.
type rememberedToken struct {
	given TokenProvider
	last  atomic.Value // string
}

func (t *rememberedToken) get(ctx context.Context) (Token, error) {
	token, err := t.given.Token(ctx)
	if err == nil {
		t.last.Store(token.Text)
	}
	return token, err
}

// secret is the last token, "" before the first.
func (t *rememberedToken) secret() string {
	text, _ := t.last.Load().(string)
	return text
}
