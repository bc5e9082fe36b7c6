package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) {
	crashtest.RunPublisher()
	goleak.VerifyTestMain(stopping{m})
}

// stopping stops the PostgreSQL server after the tests.
type stopping struct{ *testing.M }

func (s stopping) Run() int {
	code := s.M.Run()
	if postgrestest.Stop() != nil {
		code = max(code, 1)
	}
	return code
}
