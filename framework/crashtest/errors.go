package crashtest

import "errors"

// Errors of Run.
var (
	// ErrConfig is wrapped if a Config is not valid, or if RunPublisher was not called first, so that
	// Run cannot start the process again as a publisher.
	ErrConfig = errors.New("unusable configuration")
	// ErrBroken is wrapped if a guarantee was broken.
	ErrBroken = errors.New("a guarantee was broken")
	// ErrEnded is wrapped if a forwarder or publisher ended by itself, did not end when asked,
	// or did not work.
	ErrEnded = errors.New("a process did not run or end as it should")
)
