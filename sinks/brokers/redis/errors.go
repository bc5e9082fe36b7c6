package redis

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/sinks"
)

var answers = []sinks.Answer{
	{Says: "the id of the entry", Means: "delivered"},
	{Says: "connection lost or refused, no answer within timeout, too many clients", Means: "unavailable"},
	{Says: "NOAUTH, WRONGPASS, NOPERM, DENIED: the user, its password or its ACL", Means: "unavailable"},
	{Says: "LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED, ASK: not now, or not this server", Means: "unavailable"},
	{Says: "OOM, MISCONF, NOREPLICAS: no memory, no disk, too few replicas", Means: "unavailable"},
	{Says: "WRONGTYPE: the key holds something else than a stream", Means: "unavailable"},
	{Says: "ERR of a database that is not there, an unknown command, a user or password that it does not ask for", Means: "unavailable"},
	{Says: "a payload or text of more than max_message_bytes (not sent)", Means: "permanent"},
	{Says: "a payload or text of more than the server's proto-max-bulk-len", Means: "permanent; unavailable where it hangs up without a word and the user may not ask for the limit"},
	{Says: "other ERR and all others", Means: "transient"},
}

// ofServer are the codes, with which an error of Redis begins, of what every entry meets. To
// a key that comes from data some of them are about this key alone: then entries of others
// get through, and the engine counts attempts.
var ofServer = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"OOM", "MISCONF", "NOREPLICAS", "WRONGTYPE",
}

// ofSettings are the beginnings of errors with the code ERR, or with none, that are about the
// configuration, which every entry meets.
var ofSettings = []string{
	"DB index is out of range", "invalid DB index", "SELECT is not allowed",
	"unknown command", "unknown subcommand", "wrong number of arguments for", "This instance has cluster support disabled",
	"AUTH ", "Client sent AUTH", "invalid password", "operation not permitted", "Authentication required",
}

// tooLarge begins the server's answer to what is above its proto-max-bulk-len.
const tooLarge = "Protocol error: invalid bulk length"

// classify is about errors of XADD.
func classify(err error) error {
	begins := func(text string) bool { return redis.HasErrorPrefix(err, text) }
	if begins(tooLarge) {
		return sinks.Permanent(fmt.Errorf("above the server's proto-max-bulk-len: %w", err))
	}
	if slices.ContainsFunc(ofSettings, begins) || slices.ContainsFunc(ofServer, func(code string) bool { return begins(code + " ") }) ||
		redis.IsMaxClientsError(err) || redis.IsAuthError(err) || redis.IsPermissionError(err) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return sinks.Unavailable(err)
	}
	return err
}

// withoutPayload cuts the text of an error where it begins to repeat the command.
func withoutPayload(err error, m *message.Message) error {
	text := err.Error()
	end := strings.Index(text, "with args beginning with")
	if start := m.Payload[:min(len(m.Payload), quoted)]; len(start) == quoted && end < 0 {
		end = strings.Index(text, string(start))
	}
	if end < 0 {
		return err
	}
	return &shortened{text: text[:end] + "…", cause: err}
}

// quoted is how many bytes of the payload are looked for.
const quoted = 8

// shortened is an error whose text is cut. Its cause is for errors.As only.
type shortened struct {
	text  string
	cause error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.cause }

// hungUp says that the server ended the connection.
func hungUp(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE},
		func(one error) bool { return errors.Is(err, one) })
}
