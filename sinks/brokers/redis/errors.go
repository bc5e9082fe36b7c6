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
	{Says: "connection lost or refused, no answer within `timeout`, too many clients", Means: "unavailable"},
	{Says: "NOAUTH, WRONGPASS, NOPERM, DENIED: the user, its password or its ACL", Means: "unavailable"},
	{Says: "LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED, ASK: the server cannot write now, or another server must", Means: "unavailable"},
	{Says: "OOM, MISCONF, NOREPLICAS: no memory, no disk, too few replicas", Means: "unavailable"},
	{Says: "WRONGTYPE: the key is not a stream", Means: "unavailable"},
	{Says: "ERR about a database that does not exist, an unknown command, or a user or password that the server does not require", Means: "unavailable"},
	{Says: "a payload or metadata value above `max_message_bytes` (not sent)", Means: "invalid"},
	{Says: "a payload or metadata value above the server's proto-max-bulk-len", Means: "permanent; unavailable if the server closes the connection without an error and the user may not read the limit"},
	{Says: "any other error", Means: "transient"},
}

// serverCodes are the codes of errors of Redis that affect every entry. An error begins with its
// code. If the key comes from data, some of them may affect only this key; entries of other keys
// then succeed, and the engine counts attempts.
var serverCodes = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"OOM", "MISCONF", "NOREPLICAS", "WRONGTYPE",
}

// settingsErrors are the beginnings of errors about the configuration. They have the code ERR or
// none, and affect every entry.
var settingsErrors = []string{
	"DB index is out of range", "invalid DB index", "SELECT is not allowed",
	"unknown command", "unknown subcommand", "wrong number of arguments for", "This instance has cluster support disabled",
	"AUTH ", "Client sent AUTH", "invalid password", "operation not permitted", "Authentication required",
}

// tooLarge is the beginning of the server's error for a value above its proto-max-bulk-len.
const tooLarge = "Protocol error: invalid bulk length"

// classify adds the class to an error of XADD.
func classify(err error) error {
	begins := func(text string) bool { return redis.HasErrorPrefix(err, text) }
	if begins(tooLarge) {
		return sinks.Permanent(fmt.Errorf("above the server's proto-max-bulk-len: %w", err))
	}
	if slices.ContainsFunc(settingsErrors, begins) || slices.ContainsFunc(serverCodes, func(code string) bool { return begins(code + " ") }) ||
		redis.IsMaxClientsError(err) || redis.IsAuthError(err) || redis.IsPermissionError(err) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return sinks.Unavailable(err)
	}
	return err
}

// isAboutServer reports whether a server has answered that it cannot be used. An answer about one key, which may
// come from data, says nothing about the server.
func isAboutServer(err error) bool {
	var answer redis.Error
	class, _ := sinks.Classify(classify(err))
	return errors.As(err, &answer) && class == sinks.ClassUnavailable &&
		!redis.HasErrorPrefix(err, "WRONGTYPE ") && !redis.HasErrorPrefix(err, "NOPERM ")
}

// withoutPayload cuts off the text of an error where it begins to quote the command.
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

// quoted is how many bytes of the payload withoutPayload searches for.
const quoted = 8

// shortened is an error whose text is cut off.
type shortened struct {
	text  string
	cause error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.cause }

// hungUp reports whether the server closed the connection.
func hungUp(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE},
		func(one error) bool { return errors.Is(err, one) })
}
