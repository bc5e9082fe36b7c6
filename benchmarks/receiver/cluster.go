package receiver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// countEvery is how often a cluster is asked how many records there are.
	countEvery = 2 * time.Millisecond
	// patience is for what a cluster is asked beside a run.
	patience = 30 * time.Second
)

// cluster is a topic of its own in a Kafka cluster outside of the process.
type cluster struct {
	records
	admin    *kadm.Client
	stop     context.CancelFunc
	counting sync.WaitGroup
	err      error // of counting, once that has ended
}

func newCluster(c Config) (_ *cluster, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...))
	if err != nil {
		return nil, err
	}
	counting, stop := context.WithCancel(context.Background())
	k := &cluster{records: newRecords(c, c.Brokers, fmt.Sprintf("waybill-bench-%08x", rand.Uint32())), admin: kadm.NewClient(client), stop: stop}
	ctx, cancel := context.WithTimeout(counting, patience)
	defer cancel()
	if _, err := k.admin.CreateTopic(ctx, partitions, 1, nil, k.to.Topic); err != nil {
		stop()
		k.admin.Close()
		return nil, fmt.Errorf("create topic %s: %w", k.to.Topic, err)
	}
	for _, err := stored(ctx, client, k.to.Topic); err != nil; _, err = stored(ctx, client, k.to.Topic) {
		select { // its partitions have no leader yet
		case <-ctx.Done():
			stop()
			k.admin.Close()
			return nil, fmt.Errorf("topic %s: %w", k.to.Topic, err)
		case <-time.After(countEvery):
		}
	}
	k.counting.Go(func() { k.err = k.count(counting, client) })
	return k, nil
}

// count asks how many records there are until ctx is done.
func (k *cluster) count(ctx context.Context, client *kgo.Client) error {
	for next := time.NewTicker(countEvery); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		switch n, err := stored(ctx, client, k.to.Topic); {
		case err == nil:
			k.arrived.add(n - k.arrived.n.Load())
		case ctx.Err() == nil:
			return err
		}
	}
}

// Close removes the topic.
func (k *cluster) Close() error {
	k.stop()
	k.counting.Wait()
	defer k.admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := k.admin.DeleteTopic(ctx, k.to.Topic)
	return errors.Join(k.err, err)
}
