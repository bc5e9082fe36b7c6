package kafka

import "time"

// SetGrace sets how long a call of the client may take after its context has ended.
func (c *Config) SetGrace(d time.Duration) { c.grace = d }
