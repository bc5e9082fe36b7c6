package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// Redirect makes the clients that the sink opens from now on connect to other brokers, as if a
// host name had changed its address.
func Redirect(s *Sink, brokers []string) {
	s.franz.options = append(s.franz.options, kgo.SeedBrokers(brokers...))
}
