package redis

import (
	"errors"
	"slices"

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
	{Says: "a payload or text of more than max_message_bytes (not sent)", Means: "permanent"},
	{Says: "ERR and all others", Means: "transient"},
}

// ofServer are the codes, with which an error of Redis begins, of what every entry meets. To
// a key that comes from data some of them are about this key alone: then entries of others
// get through, and the engine counts attempts.
var ofServer = []string{
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"OOM", "MISCONF", "NOREPLICAS", "WRONGTYPE",
}

// classify is about errors of XADD.
func classify(err error) error {
	if slices.ContainsFunc(ofServer, func(code string) bool { return redis.HasErrorPrefix(err, code+" ") }) ||
		redis.IsMaxClientsError(err) || redis.IsAuthError(err) || redis.IsPermissionError(err) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return sinks.Unavailable(err)
	}
	return err
}
