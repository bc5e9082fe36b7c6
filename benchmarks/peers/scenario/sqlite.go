package scenario

import (
	"fmt"

	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// fileRate is the rate at which the latency of SQLite is measured, in transactions/s.
const fileRate = 100

const fileAbout = " The database is a file with a WAL and synchronous=FULL, for all contenders; publishers share one connection, since there is one writer at a time."

// sqlite returns the scenarios whose outbox is a file.
func sqlite(s Sizes) []Scenario {
	relays := []peer.Relay{inFile(), riverFile(), peer.FileTable()}
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}
	drain := Scenario{
		Name: "sqlite-drain", Title: "SQLite: draining a backlog to nowhere", Metrics: []result.Quantity{rate, ownCPU},
		About:      fmt.Sprintf("%s orders are pending when the relay starts. A run takes at most %s.", n(s.SlowBacklog), s.Limit) + fileAbout,
		Contenders: drains(to, s.SlowBacklog, s.Limit, relays...),
	}
	lag := Scenario{
		Name: "sqlite-latency", Title: "SQLite: from the commit to the sink", Metrics: []result.Quantity{latencyMetrics[0], latencyMetrics[1], latencyMetrics[2], latencyMetrics[3], published, ownCPU},
		About: fmt.Sprintf("%d transactions a second for %s. Publisher and relay share only the file.", fileRate, s.Publishing) + fileAbout,
	}
	publishing := Scenario{
		Name: "sqlite-transactions", Title: "SQLite: what publishing costs a transaction", Metrics: []result.Quantity{published, ownCPU},
		About: fmt.Sprintf("%d clients run transactions for %s, each with one business INSERT and one notification. No relay runs.", s.Clients, s.Publishing) + fileAbout,
		Contenders: []Contender{
			{Name: "Limit: business INSERT", Configuration: "nothing published", Run: writers{peer.InFile{Outbox: peer.Business{}}, s}.run},
		},
	}
	for _, r := range relays {
		lag.Contenders = append(lag.Contenders, lags{relay: r, sizes: s, rate: fileRate}.contender())
		publishing.Contenders = append(publishing.Contenders, Contender{Name: r.Name, Configuration: r.Configuration, Run: writers{r.Outbox, s}.run})
	}
	return []Scenario{drain, lag, publishing}
}
