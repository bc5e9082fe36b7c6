package notification

import "errors"

// ErrInvalid is wrapped by every error about a field that cannot be stored.
var ErrInvalid = errors.New("invalid notification")
