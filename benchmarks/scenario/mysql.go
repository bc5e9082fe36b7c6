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

const mysqlAbout = " Commits wait for the disk, and there is no binary log; innodb_buffer_pool_size is 512 MB, innodb_autoinc_lock_mode 2. All contenders use go-sql-driver, which writes arguments into the text of statements, except those of Watermill. A family without a server on the machine is left out."

// families are the servers, with the prefix of their contenders' names.
var families = []struct {
	family mysqltest.Family
	name   string
}{{mysqltest.MariaDB, "MariaDB: "}, {mysqltest.MySQL, "MySQL 8.0: "}}

// serverCPU is theirCPU for servers that are not PostgreSQL.
var serverCPU = Metric{Key: theirCPU.Key, Title: "CPU: server", Decimals: theirCPU.Decimals}

// transactionTime is how long a business transaction takes its client.
var transactionTime = Metric{Key: transactionKey, Title: "transaction, ms", Decimals: 2}

// mysql returns the scenarios whose outbox is in MySQL or MariaDB.
func mysql(s Sizes) []Scenario {
	waybill := peer.WaybillForwarder{}.Relay("default", "single deliveries; looks take at most a tenth of the time, and are at most 50 ms apart: all default")
	gappy := waybill
	gappy.Name, gappy.Outbox = "Waybill, 5% rolled back", peer.Gappy{}
	watermill := peer.WatermillForwarder{BatchSize: 1000, PollInterval: time.Millisecond}.Relay("tuned",
		"watermill-sql v3 with its own schema and offsets for MySQL; batches of 1,000 (10,000 are not faster), a poll every ms")
	watermill.Lossy = "its subscriber reads after the highest offset that it has seen, also in a serializable transaction, so it skips a row with a lower offset that is committed later"
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}

	drain := Scenario{
		Name: "mysql-drain", Title: "MySQL and MariaDB: draining a backlog to nowhere", Metrics: []Metric{rate, ownCPU, serverCPU},
		About: english.Sprintf("%d orders are pending when the relay starts; a delivery is a function call that counts. A run takes at most %s. With 5% rolled back, an offset that was rolled back precedes each twentieth order.", s.Backlog, s.Limit) + mysqlAbout,
	}
	lag := Scenario{
		Name: "mysql-steady", Title: "MySQL and MariaDB: publishing and delivering at a steady rate", Metrics: []Metric{transactionTime, latencyMetrics[0], latencyMetrics[1], latencyMetrics[2], latencyMetrics[3], published, ownCPU, serverCPU},
		About: fmt.Sprintf("%d transactions a second for %s, each with a business INSERT and a notification. The table has the median duration of a transaction, from its beginning to the end of its commit, and the latency from the beginning of the commit to the delivery, which is to nowhere. Publisher and relay share only the database. The rows without a relay show the cost of publishing alone.", usualRate, s.Publishing) + mysqlAbout,
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
			Name: on.name + "SELECT 1 every 4 ms", Configuration: "Waybill's outbox, and nothing is delivered; one connection only sends SELECT 1",
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
	// asking is the pause between two SELECT 1 of an additional connection; 0: there is none.
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

// ask starts the additional connection, if there is one. end closes it.
func (u unread) ask(ctx context.Context, dsn string) (end func() error) {
	if u.asking == 0 {
		return func() error { return nil }
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- peer.Ask(ctx, dsn, u.asking) }()
	return func() error { stop(); return <-ended }
}
