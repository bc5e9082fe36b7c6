package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

const mysqlAbout = " Commits wait for the disk, and there is no binary log; innodb_buffer_pool_size is 512 MB, innodb_autoinc_lock_mode 2. All contenders use go-sql-driver, which writes arguments into the text of statements, except those of Watermill. A family without a server on the machine is left out."

// families are the servers, with the prefix of their contenders' names.
var families = []struct {
	family mysqltest.Family
	name   string
}{{mysqltest.MariaDB, "MariaDB: "}, {mysqltest.MySQL, "MySQL 8.0: "}}

// serverCPU is theirCPU for servers that are not PostgreSQL.
var serverCPU = result.Quantity{Name: theirCPU.Name, Unit: "cores", Better: "lower", Title: "CPU: server"}

// transactionTime is how long a business transaction takes its client.
var transactionTime = result.Quantity{Name: "transaction", Unit: "ms", Better: "lower", Title: "transaction, ms"}

// mysql returns the scenarios whose outbox is in MySQL or MariaDB.
func mysql(s Sizes) []Scenario {
	waybill := peer.WaybillForwarder{}.Relay("default", "single deliveries; looks take at most a tenth of the time, and are at most 50 ms apart: all default")
	watermill := peer.WatermillForwarder{BatchSize: 1000, PollInterval: time.Millisecond}.Relay("tuned",
		"watermill-sql v3 with its own schema and offsets for MySQL; batches of 1,000 (10,000 are not faster), a poll every ms")
	watermill.Lossy = "its subscriber reads after the highest offset that it has seen, also in a serializable transaction, so it skips a row with a lower offset that is committed later"
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}

	drain := Scenario{
		Name: "mysql-drain", Title: "MySQL and MariaDB: draining a backlog to nowhere", Metrics: []result.Quantity{rate, ownCPU, serverCPU},
		About: fmt.Sprintf("%s orders are pending when the relay starts; a delivery is a function call that counts. A run takes at most %s.", n(s.Backlog), s.Limit) + mysqlAbout,
	}
	lag := Scenario{
		Name: "mysql-steady", Title: "MySQL and MariaDB: publishing and delivering at a steady rate", Metrics: []result.Quantity{transactionTime, latencyMetrics[0], latencyMetrics[1], latencyMetrics[2], latencyMetrics[3], published, ownCPU, serverCPU},
		About: fmt.Sprintf("%d transactions a second for %s, each with a business INSERT and a notification. The table has the median duration of a transaction, from its beginning to the end of its commit, and the latency from the beginning of the commit to the delivery, which is to nowhere. Publisher and relay share only the database. The rows without a relay show the cost of publishing alone.", usualRate, s.Publishing) + mysqlAbout,
	}
	for _, on := range families {
		in := func(r peer.Relay) peer.Relay {
			r.Name, r.Outbox = on.name+r.Name, peer.InMySQL{Outbox: r.Outbox, Family: on.family}
			return r
		}
		drain.Contenders = append(drain.Contenders, drains(to, s.Backlog, s.Limit, in(waybill), in(watermill), in(peer.SkipLockedMySQL()))...)
		for _, r := range []peer.Relay{waybill, watermill, peer.SkipLockedMySQL()} {
			r = in(r)
			alone := r.Name + ", no relay"
			lag.Contenders = append(lag.Contenders, lags{relay: r, sizes: s, rate: usualRate}.contender(),
				Contender{Name: alone, Configuration: "the same, and nothing is delivered", Run: unread{outbox: r.Outbox, sizes: s, rate: usualRate}.run})
		}
	}
	return []Scenario{drain, lag}
}

// unread is a contender that publishes at a steady rate without a relay.
type unread struct {
	outbox peer.Outbox
	sizes  Sizes
	rate   int // transactions/s
}

func (u unread) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, u.outbox, u.sizes, func(dsn string, from peer.Publisher) (sample Sample, err error) {
		n := max(u.sizes.Fewest, int(u.sizes.Publishing.Seconds()*float64(u.rate)))
		m := newMeter(ctx, server)
		began := time.Now()
		transactions, err := publishSteadily(ctx, from, n, u.rate, u.sizes.Clients)
		if err != nil {
			return Sample{}, err
		}
		took := time.Since(began)
		_, sample.Metrics = m.stop(ctx, n)
		sample.Metrics[published.Name] = float64(n) / took.Seconds()
		sample.Metrics[transactionTime.Name] = transactions.Percentile(50)
		sample.Complete = true
		return sample, sample.judgeUnread(ctx, u.outbox, n, dsn)
	})
}
