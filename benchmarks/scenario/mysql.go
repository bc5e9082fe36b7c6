package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

const mysqlAbout = " Commits wait for the disk, there is no binary log; innodb_buffer_pool_size is 512 MB, innodb_autoinc_lock_mode 2. All go through go-sql-driver with arguments in their statements. A family of which there is no server is left out."

// families are the servers, by what their contenders' names begin with.
var families = []struct {
	family mysqltest.Family
	name   string
}{{mysqltest.MariaDB, "MariaDB: "}, {mysqltest.MySQL, "MySQL 8.0: "}}

// serverCPU is theirCPU for servers that are not PostgreSQL.
var serverCPU = Metric{Key: theirCPU.Key, Title: "CPU: server", Decimals: theirCPU.Decimals}

// transactionTime is how long a business transaction takes its client.
var transactionTime = Metric{Key: transactionKey, Title: "a transaction takes, ms", Decimals: 2}

// mysql are the scenarios whose outbox is in MySQL or MariaDB.
func mysql(s Sizes) []Scenario {
	waybill := peer.WaybillForwarder{}.Relay("default", "single deliveries; looks take a tenth of the time at most, and there is one every 50 ms at least: all default")
	gappy := waybill
	gappy.Name, gappy.Outbox = "Waybill, 5% rolled back", peer.Gappy{}
	watermill := peer.WatermillForwarder{BatchSize: 1000, PollInterval: time.Millisecond}.Relay("tuned",
		"watermill-sql v3 with its own schema and offsets for MySQL; batches of 1,000 (10,000 are not faster), a poll every ms")
	watermill.Lossy = "its subscriber reads behind the highest offset that it has seen, also in a serializable transaction; a row that took a lower one and is stored later is passed over"
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}

	drain := Scenario{
		Name: "mysql-drain", Title: "MySQL and MariaDB: draining a backlog to nowhere", Metrics: []Metric{rate, ownCPU, serverCPU},
		About: english.Sprintf("%d orders are pending when the relay starts; a delivery is a function call that counts. A run may take %s. Offsets that were rolled back lie in front of each twentieth order where it says so.", s.Backlog, s.Limit) + mysqlAbout,
	}
	lag := Scenario{
		Name: "mysql-steady", Title: "MySQL and MariaDB: publishing and delivering at a steady rate", Metrics: []Metric{transactionTime, latencyMetrics[0], latencyMetrics[1], latencyMetrics[2], latencyMetrics[3], published, ownCPU, serverCPU},
		About: fmt.Sprintf("%d transactions a second for %s, of a business INSERT and a notification: the median of what one takes its client, from its beginning to the end of its commit, and the time from when each begins to commit until its delivery, which is to nowhere. Publisher and relay share nothing but the database. The rows without a relay show what publishing takes by itself.", usualRate, s.Publishing) + mysqlAbout,
	}
	for _, on := range families {
		in := func(r peer.Relay) peer.Relay {
			r.Name, r.Outbox = on.name+r.Name, peer.InMySQL{Outbox: r.Outbox, Family: on.family}
			return r
		}
		drain.Contenders = append(drain.Contenders, drains(to, s.Backlog, s.Limit, in(waybill), in(gappy), in(watermill), in(peer.SkipLockedMySQL()))...)
		for _, r := range []peer.Relay{waybill, watermill, peer.SkipLockedMySQL()} {
			r = in(r)
			alone := r.Name + ", no relay"
			lag.Contenders = append(lag.Contenders, lags{relay: r, sizes: s, rate: usualRate}.contender(),
				Contender{Name: alone, Configuration: "the same, and nothing is delivered", Run: unread{outbox: r.Outbox, sizes: s, rate: usualRate}.run})
		}
		lag.Contenders = append(lag.Contenders, Contender{
			Name: on.name + "SELECT 1 every 4 ms", Configuration: "Waybill's outbox, and nothing is delivered; one connection asks for nothing",
			Run: unread{outbox: in(waybill).Outbox, sizes: s, rate: usualRate, asking: 4 * time.Millisecond}.run,
		})
	}
	return []Scenario{drain, lag}
}

// unread is a contender that publishes at a steady rate without a relay.
type unread struct {
	outbox peer.Outbox
	sizes  Sizes
	rate   int // transactions/s
	// asking is how long one connection rests between two statements that read nothing; 0: there is none.
	asking time.Duration
}

func (u unread) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, u.outbox, u.sizes, func(dsn string, from peer.Publisher) (sample Sample, err error) {
		n := max(u.sizes.Fewest, int(u.sizes.Publishing.Seconds()*float64(u.rate)))
		end := u.ask(ctx, dsn)
		defer func() { err = errors.Join(err, end()) }()
		m := newMeter(ctx, server)
		began := time.Now()
		made, err := publishSteadily(ctx, from, n, u.rate, u.sizes.Clients)
		if err != nil {
			return Sample{}, err
		}
		took := time.Since(began)
		_, sample.Metrics = m.stop(ctx, n)
		sample.Metrics["published"] = float64(n) / took.Seconds()
		addTransactions(sample.Metrics, made)
		sample.Complete = true
		stored, err := u.outbox.Pending(ctx, dsn)
		sample.Lost = max(0, n-stored)
		return sample, err
	})
}

// ask begins to ask for nothing. end ends that.
func (u unread) ask(ctx context.Context, dsn string) (end func() error) {
	if u.asking == 0 {
		return func() error { return nil }
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- peer.Ask(ctx, dsn, u.asking) }()
	return func() error { stop(); return <-ended }
}
