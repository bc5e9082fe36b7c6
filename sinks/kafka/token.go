package kafka

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// fileToken is the path of a file that another program keeps current.
type fileToken string

func (path fileToken) Token() (*sarama.AccessToken, error) {
	text, err := os.ReadFile(string(path))
	if err != nil {
		return nil, fmt.Errorf("sasl.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return nil, fmt.Errorf("sasl.token_file: %s is empty", string(path))
	case strings.ContainsFunc(token, notInToken):
		return nil, fmt.Errorf("sasl.token_file: %s holds something else than one token", string(path))
	}
	return &sarama.AccessToken{Token: token}, nil
}

// notInToken follows RFC 6750, section 2.1, for what would end a token, or begin
// something else (RFC 7628, section 3.1).
func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// rememberedToken knows what was given last, so that no error repeats it.
type rememberedToken struct {
	sarama.AccessTokenProvider
	last atomic.Value // string
}

func (t *rememberedToken) Token() (*sarama.AccessToken, error) {
	token, err := t.AccessTokenProvider.Token()
	if err == nil && token != nil {
		t.last.Store(token.Token)
	}
	return token, err
}

// secret is the last token, "" before the first.
func (t *rememberedToken) secret() string {
	text, _ := t.last.Load().(string)
	return text
}
