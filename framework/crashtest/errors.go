package crashtest

import "errors"

// Errors before a run.
var (
	// ErrConfig is wrapped where a Config cannot be used.
	ErrConfig = errors.New("unusable configuration")
	// ErrNoPublisher is returned where RunPublisher was not called first: the
	// process could not be started again as a publisher.
	ErrNoPublisher = errors.New("RunPublisher was not called: call it first in TestMain or main")
)

// Errors of a run.
var (
	// ErrBroken is wrapped where a guarantee was broken.
	ErrBroken = errors.New("a guarantee was broken")
	// ErrEnded is wrapped where a forwarder or publisher ended by itself.
	ErrEnded = errors.New("a process ended by itself")
	// ErrNetwork is wrapped where a proxy could not do what a fault asked of it.
	ErrNetwork = errors.New("the proxy does not obey")
)
