package email_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "order.placed"), 0o700))
	for name, text := range map[string]string{"to.tmpl": "jane@example.org", "subject.tmpl": "Thanks", "text.tmpl": "Thanks!"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "order.placed", name), []byte(text), 0o600))
	}
	required := email.Config{SMTP: "smtp://localhost", From: "shop@example.com", Templates: folder}
	sinktest.RunKind(t, email.Kind(), required)
	_, err := email.New(sinks.Instance{}, required)
	require.NoError(t, err)
}
