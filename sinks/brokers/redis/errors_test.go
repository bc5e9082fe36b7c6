package redis_test

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/redis"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// server starts a server that answers XADD with one line, accepts any password, and supports no other command.
func server(t *testing.T, answer string) string {
	t.Helper()
	return "redis://" + servertest.Serve(t, func(conn net.Conn) { serve(conn, answer) })
}

func serve(conn net.Conn, answer string) {
	for in := bufio.NewReader(conn); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		line := "-ERR unknown command"
		switch strings.ToLower(command[0]) {
		case "xadd":
			line = answer
		case "auth":
			line = "+OK"
		}
		if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
			return
		}
	}
}

// readCommand reads a command, which is an array of bulk strings.
func readCommand(in *bufio.Reader) (words []string, err error) {
	count, err := readLength(in)
	for range count {
		size, err := readLength(in)
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, err
}

func readLength(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// TestRareErrorsOfTheServerHaveTheirClasses checks errors of states that tests cannot cause in a
// real server.
func TestRareErrorsOfTheServerHaveTheirClasses(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]sinks.Class{
		"-LOADING Redis is loading the dataset in memory":                                   sinks.ClassUnavailable,
		"-BUSY Redis is busy running a script":                                              sinks.ClassUnavailable,
		"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": sinks.ClassUnavailable,
		"-CLUSTERDOWN The cluster is down":                                                  sinks.ClassUnavailable,
		"-TRYAGAIN Multiple keys request during rehashing of slot":                          sinks.ClassUnavailable,
		"-MOVED 3999 127.0.0.1:6381":                                                        sinks.ClassUnavailable,
		"-ASK 3999 127.0.0.1:6381":                                                          sinks.ClassUnavailable,
		"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to":  sinks.ClassUnavailable,
		"-NOAUTH Authentication required.":                                                  sinks.ClassUnavailable,
		"-DENIED Redis is running in protected mode":                                        sinks.ClassUnavailable,
		"-ERR max number of clients reached":                                                sinks.ClassUnavailable,
		"-ERR DB index is out of range":                                                     sinks.ClassUnavailable,
		"-ERR invalid DB index":                                                             sinks.ClassUnavailable,
		"-ERR SELECT is not allowed in cluster mode":                                        sinks.ClassUnavailable,
		"-ERR unknown command 'xadd'":                                                       sinks.ClassUnavailable,
		"-ERR unknown command `xadd`":                                                       sinks.ClassUnavailable,
		"-ERR wrong number of arguments for 'auth' command":                                 sinks.ClassUnavailable,
		"-ERR invalid password":                                                             sinks.ClassUnavailable,
		"-ERR operation not permitted":                                                      sinks.ClassUnavailable,
		"-ERR Protocol error: invalid bulk length":                                          sinks.ClassPermanent,
		"-ERR The stream has exhausted the last possible ID, unable to add more items":      sinks.ClassTransient,
		"-BUSYKEY is another code, which only begins like one":                              sinks.ClassTransient,
	} {
		sink := kindtest.New(t, redis.Kind(), sinks.Instance{}, settings(server(t, answer)))
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, want, sinktest.Class(err), "%v", err)
		require.ErrorContains(t, err, answer[1:])
	}
}

func TestNoErrorRepeatsThePassword(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"-NOPERM default:hunter22 may not do that", `-ERR redis://:hunter%32%32@host has no room`} {
		address := strings.TrimPrefix(server(t, answer), "redis://")
		for _, with := range []string{"url: redis://:hunter22@" + address, "url: redis://" + address + "\npassword: hunter22"} {
			var log lockedBuffer
			sink := kindtest.New(t, redis.Kind(), sinks.Instance{Logger: slog.New(slog.NewTextHandler(&log, nil))}, with+"\ntopic: shop")
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
			require.ErrorContains(t, err, "***")
			require.NotContains(t, err.Error()+log.String(), "hunter")
		}
	}
}
