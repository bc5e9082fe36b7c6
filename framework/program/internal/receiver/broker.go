package receiver

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker is a Kafka broker inside the process.
type Broker struct {
	// Addresses are its addresses on the loopback interface.
	Addresses []string

	cluster *kfake.Cluster
}

// StartBroker starts a broker that stores its data in folder, and waits for delay before it stores what
// is produced.
func StartBroker(folder string, delay time.Duration) (*Broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(filepath.Join(folder, "kafka")))
	if err != nil {
		return nil, fmt.Errorf("start a Kafka broker: %w", err)
	}
	if delay > 0 {
		cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			cluster.SleepControl(func() { time.Sleep(delay) })
			return nil, nil, false // the broker handles the request as usual
		})
	}
	return &Broker{Addresses: cluster.ListenAddrs(), cluster: cluster}, nil
}

// Close stops the broker. The caller removes the folder.
func (b *Broker) Close() { b.cluster.Close() }
