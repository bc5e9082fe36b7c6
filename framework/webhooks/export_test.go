package webhooks

// Limit sets how many endpoints a checkpoint reads, and how many notifications it publishes for them.
func (s *Sink) Limit(endpoints, published int) { s.limits = limits{endpoints, published} }
