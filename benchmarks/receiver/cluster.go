package receiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// countEvery is the interval at which the records of a cluster are counted.
	countEvery = 2 * time.Millisecond
	// patience is the timeout of requests to a cluster before and after a run.
	patience = 30 * time.Second
)

// cluster is a topic in a Kafka cluster outside the process.
type cluster struct {
	records
	admin    *kadm.Client
	stop     context.CancelFunc
	counting sync.WaitGroup
	err      error // of counting; set when counting ends
}

func newCluster(c Config) (_ *cluster, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...))
	if err != nil {
		return nil, err
	}
	counting, stop := context.WithCancel(context.Background())
	k := &cluster{records: newRecords(c, c.Brokers, topic), admin: kadm.NewClient(client), stop: stop}
	if err := k.begin(counting, client); err != nil {
		stop()
		k.admin.Close()
		return nil, fmt.Errorf("begin with an empty topic %s: %w", topic, err)
	}
	k.counting.Go(func() { k.err = k.count(counting, client) })
	return k, nil
}

// begin creates the topic and waits until it is usable. The cluster may still be deleting the topic
// of the run before, and new partitions have no leader at first.
func (k *cluster) begin(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	created := false
	for {
		var err error
		if !created {
			_, err = k.admin.CreateTopic(ctx, partitions, 1, nil, topic)
			created = err == nil
		}
		if created {
			if _, err = stored(ctx, client, topic); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(countEvery):
		}
	}
}

// count counts the records in the topic until ctx is done.
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

// Close deletes the topic.
func (k *cluster) Close() error {
	k.stop()
	k.counting.Wait()
	defer k.admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := k.admin.DeleteTopic(ctx, k.to.Topic)
	return errors.Join(k.err, err)
}
