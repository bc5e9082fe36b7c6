package crashtest

import "errors"

// Errors before a run begins.
var (
	// ErrConfig is wrapped if a Config is not valid.
	ErrConfig = errors.New("unusable configuration")
	// ErrNoPublisher means that RunPublisher was not called first, so that Run cannot start the
	// process again as a publisher.
	ErrNoPublisher = errors.New("RunPublisher was not called: call it first in TestMain or main")
)

// Errors of a run.
var (
	// ErrBroken is wrapped if a guarantee was broken.
	ErrBroken = errors.New("a guarantee was broken")
	// ErrEnded is wrapped if a forwarder or publisher ended by itself, did not end when asked,
	// or did not work.
	ErrEnded = errors.New("a process did not run or end as it should")
	// ErrNetwork is wrapped if a proxy failed to do what a fault needs.
	ErrNetwork = errors.New("the proxy did not change as requested")
)
