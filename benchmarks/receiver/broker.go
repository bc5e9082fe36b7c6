package receiver

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Broker is a Kafka broker inside the process.
type Broker struct {
	// Addresses are its addresses on the loopback interface.
	Addresses []string

	cluster *kfake.Cluster
}

// StartBroker starts a broker that stores its data in folder, or in memory if folder is "". Each of its
// answers comes later by delay, as over a network.
func StartBroker(folder string, delay time.Duration) (*Broker, error) {
	options := []kfake.Opt{kfake.NumBrokers(1)}
	if folder != "" {
		options = append(options, kfake.DataDir(filepath.Join(folder, "kafka")))
	}
	if delay > 0 {
		options = append(options, kfake.ListenFn(listenSlowly(delay)))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("start a Kafka broker: %w", err)
	}
	return &Broker{Addresses: cluster.ListenAddrs(), cluster: cluster}, nil
}

// Close stops the broker. The caller removes the folder.
func (b *Broker) Close() { b.cluster.Close() }
