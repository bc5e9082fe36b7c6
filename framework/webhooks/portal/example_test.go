package portal_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
	"github.com/waybill-go/waybill/sinks"
)
