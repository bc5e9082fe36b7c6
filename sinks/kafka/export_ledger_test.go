package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// Redirect has clients that the sink opens from now on reach other brokers, as a name does that leads
// elsewhere.
func Redirect(s *Sink, brokers []string) {
	s.franz.options = append(s.franz.options, kgo.SeedBrokers(brokers...))
}
